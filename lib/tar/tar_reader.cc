#include "lib/tar/tar_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "lib/tar/tar_header.h"
#include "lib/text.h"

namespace isogate {
namespace {

// Up to its first NUL, or the whole field.
template <size_t N>
std::string_view text_of(const char (&field)[N]) {
  const std::string_view all(field, N);
  return all.substr(0, std::min(all.find('\0'), N));
}

// Octal digits between blanks, or the base-256 of GNU, in which a first byte of 0xff is a negative number.
template <size_t N>
std::optional<int64_t> number_of(const char (&field)[N]) {
  const auto first = static_cast<unsigned char>(field[0]);
  if ((first & 0x80) != 0) {
    int64_t value = first == 0xff ? -1 : first & 0x7f;
    for (size_t i = 1; i < N; ++i) {
      if (value > INT64_MAX >> 8 || value < INT64_MIN / 256) return std::nullopt;
      value = value * 256 + static_cast<unsigned char>(field[i]);
    }
    return value;
  }
  std::string_view text = text_of(field);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, std::min(text.find_last_not_of(' ') + 1, text.size()));
  if (text.empty()) return 0;
  const auto value = number_in<int64_t>(text, 8);
  return value && *value >= 0 ? value : std::nullopt;
}

// Old writers added signed bytes.
bool checksum_fits(const TarHeader& header) {
  const auto given = number_of(header.checksum);
  const std::string_view bytes(reinterpret_cast<const char*>(&header), sizeof header);
  const size_t begin = offsetof(TarHeader, checksum), end = begin + sizeof header.checksum;
  int64_t plain = 0, with_sign = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char byte = i >= begin && i < end ? ' ' : bytes[i];
    plain += static_cast<unsigned char>(byte);
    with_sign += static_cast<signed char>(byte);
  }
  return given && (*given == plain || *given == with_sign);
}

bool only_zeros(std::string_view bytes) { return bytes.find_first_not_of('\0') == std::string_view::npos; }

const char* compression_of(std::string_view bytes) {
  static constexpr std::pair<std::string_view, const char*> kMagic[] = {
      {"\x1f\x8b", "gzip"}, {"BZh", "bzip2"}, {"\xfd\x37zXZ", "xz"}, {"\x28\xb5\x2f\xfd", "zstd"}};
  for (const auto& [magic, name] : kMagic)
    if (bytes.starts_with(magic)) return name;
  return nullptr;
}

uint64_t padding_of(uint64_t size) { return (kTarBlock - size % kTarBlock) % kTarBlock; }

// Seconds with a fraction, which is dropped.
std::optional<int64_t> time_in(std::string_view text) {
  const std::string_view whole = text.substr(0, text.find('.'));
  const std::string_view rest = text.substr(whole.size());
  const bool fits = rest.find_first_not_of("0123456789", 1) == std::string_view::npos;
  return fits ? number_in<int64_t>(whole) : std::nullopt;
}

// An empty one takes back what an earlier record said.
std::optional<std::string> text_in(std::string_view value) {
  return value.empty() ? std::nullopt : std::optional(std::string(value));
}

}  // namespace

std::string TarMember::kind_text() const {
  switch (kind) {
    case Kind::kFile:
      return "a file";
    case Kind::kDirectory:
      return "a directory";
    case Kind::kSymlink:
      return "a symlink";
    case Kind::kHardLink:
      return "a hard link";
    case Kind::kOther:
      break;
  }
  if (type == '3' || type == '4') return "a device";
  if (type == '6') return "a FIFO";
  if (type == 'S') return "a sparse file";
  return "of the unknown type `" + printable({&type, 1}, 8) + "`";
}

Error TarReader::error(const std::string& why) const {
  return invalid("the archive is not well-formed near its byte " + std::to_string(taken_) + ": " + why);
}

Result<TarReader::Step> TarReader::next(std::string_view& in) {
  const auto take = [&](uint64_t most) {
    const std::string_view piece = in.substr(0, std::min<uint64_t>(most, in.size()));
    in.remove_prefix(piece.size());
    taken_ += piece.size();
    return piece;
  };
  while (!in.empty()) {
    if (state_ == State::kContent && left_ > 0) {
      content_ = take(left_);
      left_ -= content_.size();
      return Step::kContent;
    }
    if (state_ == State::kContent) state_ = State::kHeader;
    if (padding_ > 0) {
      padding_ -= take(padding_).size();
    } else if (state_ == State::kTail) {
      if (!only_zeros(take(in.size()))) return error("there are bytes after its end");
    } else if (state_ == State::kExtension) {
      extension_ += take(left_ - extension_.size());
      if (extension_.size() < left_) continue;
      left_ = 0;
      state_ = State::kHeader;
      if (auto read = read_extension(); !read) return read.error();
    } else {
      block_ += take(kTarBlock - block_.size());
      if (block_.size() < kTarBlock) continue;
      auto is_member = read_header();
      block_.clear();
      if (!is_member) return is_member.error();
      if (state_ == State::kTail) return Step::kEnd;
      if (*is_member) return Step::kMember;
    }
  }
  return Step::kMore;
}

Result<void> TarReader::finish() const {
  if (state_ == State::kTail) return {};
  if (auto plain = check_compression(); !plain) return plain.error();
  if (state_ == State::kContent && left_ > 0)
    return error("it is cut off inside `" + printable(member_.name, 200) + "`");
  return error("it is cut off: its end mark, a block of zeros, is missing");
}

// By its first block, or what came of it.
Result<void> TarReader::check_compression() const {
  const char* name = taken_ == block_.size() ? compression_of(block_) : nullptr;
  if (name == nullptr) return {};
  return error(std::string("it is compressed with ") + name + "; send it uncompressed");
}

// False: the header belongs to the archive, not to a member.
Result<bool> TarReader::read_header() {
  if (only_zeros(block_)) {
    if (extended_) return error("an extended header has no member");
    state_ = State::kTail;
    return false;
  }
  TarHeader header;
  std::memcpy(&header, block_.data(), sizeof header);
  if (!checksum_fits(header)) {
    if (auto plain = check_compression(); !plain) return plain.error();
    return error("a header has the wrong checksum, or this is no tar");
  }
  const auto size = number_of(header.size);
  if (!size || *size < 0) return error("a header has no valid size");
  if (std::strchr("xgLK", header.type) == nullptr || header.type == '\0') {
    if (auto read = read_member(header); !read) return read.error();
    return true;
  }
  if (static_cast<uint64_t>(*size) > kMostExtension)
    return error("an extended header is over " + std::to_string(kMostExtension) + " bytes");
  extension_type_ = header.type;
  extension_.clear();
  left_ = static_cast<uint64_t>(*size);
  state_ = left_ > 0 ? State::kExtension : State::kHeader;
  extended_ = extended_ || header.type != 'g';
  return false;
}

Result<void> TarReader::read_member(const TarHeader& header) {
  const Overrides more = std::exchange(overrides_, {});
  extended_ = false;
  member_ = {};
  member_.type = header.type;
  member_.name = text_of(header.name);
  const bool posix = std::string_view(header.magic, 6) == std::string_view("ustar\0", 6);
  if (posix && header.prefix[0] != '\0')
    member_.name = std::string(text_of(header.prefix)) + "/" + member_.name;
  if (more.path) member_.name = *more.path;
  member_.target = more.link.value_or(std::string(text_of(header.target)));
  const auto mode = number_of(header.mode), mtime = number_of(header.mtime), size = number_of(header.size);
  if (!mode || *mode < 0 || !mtime)
    return error("the header of `" + printable(member_.name, 200) + "` has no valid mode or time");
  member_.mode = static_cast<uint32_t>(*mode & 07777);
  member_.mtime = more.mtime.value_or(*mtime);
  member_.skipped = more.skipped;
  using Kind = TarMember::Kind;
  switch (header.type) {
    case '0':
    case '\0':
    case '7':
      member_.kind = member_.name.ends_with('/') ? Kind::kDirectory : Kind::kFile;
      break;
    case '1':
      member_.kind = Kind::kHardLink;
      break;
    case '2':
      member_.kind = Kind::kSymlink;
      break;
    case '5':
      member_.kind = Kind::kDirectory;
      break;
    default:
      member_.kind = Kind::kOther;
  }
  if (more.sparse) {
    member_.kind = Kind::kOther;
    member_.type = 'S';
  }
  if (member_.kind == Kind::kFile) member_.size = more.size.value_or(static_cast<uint64_t>(*size));
  if (member_.size > INT64_MAX) return error("a file of more than 8 EiB");
  left_ = member_.size;
  padding_ = padding_of(left_);
  state_ = State::kContent;
  return {};
}

Result<void> TarReader::read_extension() {
  padding_ = padding_of(extension_.size());
  if (extension_type_ == 'x' || extension_type_ == 'g') {
    global_ = extension_type_ == 'g';
    return read_pax(extension_);
  }
  auto& name = extension_type_ == 'L' ? overrides_.path : overrides_.link;
  if (!name) name = extension_.substr(0, extension_.find('\0'));
  return {};
}

Result<void> TarReader::read_pax(std::string_view records) {
  while (!records.empty()) {
    const size_t space = records.find(' ');
    const size_t length = number_in<size_t>(records.substr(0, space)).value_or(0);
    if (space == std::string_view::npos || length < space + 3 || length > records.size() ||
        records[length - 1] != '\n')
      return error("a record of a pax header has no valid length");
    const std::string_view record = records.substr(space + 1, length - space - 2);
    records.remove_prefix(length);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0) return error("a record of a pax header has no name");
    if (auto set = set_record(record.substr(0, equals), record.substr(equals + 1)); !set) return set;
  }
  return {};
}

Result<void> TarReader::set_record(std::string_view key, std::string_view value) {
  const bool sparse = key.starts_with("GNU.sparse.");
  const bool known = sparse || key == "path" || key == "linkpath" || key == "size";
  if (global_) {
    if (known) return error("a global header sets `" + std::string(key) + "` for all members");
    return {};
  }
  if (known && value.find('\0') != std::string_view::npos)
    return error("the record `" + std::string(key) + "` holds a NUL");
  if (sparse) {
    overrides_.sparse = true;
  } else if (key == "path") {
    overrides_.path = text_in(value);
  } else if (key == "linkpath") {
    overrides_.link = text_in(value);
  } else if (key == "size") {
    overrides_.size = number_in<uint64_t>(value);
    if (!overrides_.size && !value.empty()) return error("the record `size` is no number");
  } else if (key == "mtime") {
    overrides_.mtime = time_in(value);
    if (!overrides_.mtime && !value.empty()) return error("the record `mtime` is no time");
  } else if (key == "ISOGATE.skipped") {
    overrides_.skipped = value;
  }
  return {};
}

}  // namespace isogate
