#include "lib/tar/tar_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "lib/tar/tar_header.h"

namespace isogate {
namespace {

// Octal digits and a NUL; false when there is no room.
template <size_t N>
bool set_number(char (&field)[N], uint64_t value) {
  for (size_t i = N - 1; i-- > 0; value >>= 3) field[i] = static_cast<char>('0' + (value & 7));
  return value == 0;
}

template <size_t N>
bool set_bytes(char (&field)[N], std::string_view text) {
  std::memcpy(field, text.data(), std::min(N, text.size()));
  return text.size() <= N;
}

void sign(TarHeader& header) {
  std::memset(header.checksum, ' ', sizeof header.checksum);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  unsigned sum = 0;
  for (size_t i = 0; i < sizeof header; ++i) sum += bytes[i];
  for (size_t i = 6; i-- > 0; sum >>= 3) header.checksum[i] = static_cast<char>('0' + (sum & 7));
  header.checksum[6] = '\0';
}

std::string_view block_of(const TarHeader& header) {
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

// Values that do not fit into the header go into pax records, and are shortened in the header.
TarHeader make_header(const TarEntry& entry, char type, uint64_t size, const std::string& target,
                      std::string& records) {
  TarHeader header{};
  header.type = type;
  std::memcpy(header.magic, "ustar", 6);
  std::memcpy(header.version, "00", 2);
  if (!set_bytes(header.name, entry.name)) records += pax_record("path", entry.name);
  if (!set_bytes(header.target, target)) records += pax_record("linkpath", target);
  set_number(header.mode, entry.mode & 07777);
  if (!set_number(header.uid, entry.uid)) records += pax_record("uid", std::to_string(entry.uid));
  if (!set_number(header.gid, entry.gid)) records += pax_record("gid", std::to_string(entry.gid));
  if (!set_number(header.size, size)) records += pax_record("size", std::to_string(size));
  const bool early = entry.mtime < 0;
  if (!set_number(header.mtime, early ? 0 : static_cast<uint64_t>(entry.mtime)) || early)
    records += pax_record("mtime", std::to_string(entry.mtime));
  set_number(header.major, 0);
  set_number(header.minor, 0);
  sign(header);
  return header;
}

}  // namespace

std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t size = rest.size();
  while (std::to_string(size).size() + rest.size() != size) size = std::to_string(size).size() + rest.size();
  return std::to_string(size) + rest;
}

void TarWriter::header(const TarEntry& entry, char type, uint64_t size, const std::string& target) {
  if (left_ != 0) throw std::logic_error("a file of the archive is not complete");
  std::string records = entry.pax;
  const TarHeader main = make_header(entry, type, size, target, records);
  if (!records.empty()) {
    std::string more;
    TarEntry pax;
    pax.name = "pax";
    sink_(block_of(make_header(pax, 'x', records.size(), "", more)));
    sink_(records);
    pad(records.size());
  }
  sink_(block_of(main));
}

void TarWriter::pad(uint64_t size) {
  static constexpr std::array<char, kTarBlock> kZeros{};
  if (size % kTarBlock != 0) sink_({kZeros.data(), static_cast<size_t>(kTarBlock - size % kTarBlock)});
}

void TarWriter::directory(const TarEntry& entry) {
  TarEntry slashed = entry;
  if (!slashed.name.ends_with('/')) slashed.name += '/';
  header(slashed, '5', 0, "");
}

void TarWriter::symlink(const TarEntry& entry, const std::string& target) { header(entry, '2', 0, target); }

void TarWriter::begin_file(const TarEntry& entry, uint64_t size) {
  header(entry, '0', size, "");
  size_ = left_ = size;
}

void TarWriter::bytes(std::string_view piece) {
  passed(piece.size());
  if (!piece.empty()) sink_(piece);
}

void TarWriter::passed(uint64_t bytes) {
  if (bytes > left_) throw std::logic_error("a file of the archive is longer than it was said to be");
  left_ -= bytes;
}

void TarWriter::end_file() {
  if (left_ != 0) throw std::logic_error("a file of the archive is shorter than it was said to be");
  pad(size_);
}

void TarWriter::file(const TarEntry& entry, std::string_view content) {
  begin_file(entry, content.size());
  bytes(content);
  end_file();
}

void TarWriter::finish() {
  if (left_ != 0) throw std::logic_error("a file of the archive is not complete");
  static constexpr std::array<char, 2 * kTarBlock> kEnd{};
  sink_({kEnd.data(), kEnd.size()});
}

}  // namespace isogate
