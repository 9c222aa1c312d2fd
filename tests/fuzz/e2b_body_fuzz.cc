// What an SDK uploads: any bytes as multipart/form-data and as gzip, in pieces of any size. The result is the
// same however they are split, and never more than they contain; well-formed input is unpacked.
#include <zlib.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gateway/front/base/api_error.h"
#include "gateway/front/e2b/multipart.h"
#include "tests/fuzz/e2b_pieces.h"

namespace {

namespace asio = boost::asio;
using namespace isogate::front;
using namespace isogate::front::e2b;

constexpr size_t kMostAtOnce = 65536 + 8192 + 128, kMostUnpacked = 1 << 18, kMostReads = 1000;

struct Part {
  std::string name;
  std::optional<std::string> filename;
  std::string bytes;
  bool operator==(const Part&) const = default;
};

struct Form {
  std::vector<Part> parts;
  std::string refused;
};

// `skip`: contents are left to next().
Form read_form(const std::string& boundary, std::string_view body, std::string_view sizes,
               bool skip = false) {
  Form form;
  Pieces pieces(body, sizes);
  const auto work = [&]() -> asio::awaitable<void> {
    Multipart multipart(boundary, pieces.reader());
    while (const auto part = co_await multipart.next()) {
      form.parts.push_back({part->name, part->filename, {}});
      if (skip) continue;
      for (std::string_view piece; !(piece = co_await multipart.read()).empty();) {
        require(piece.size() <= kMostAtOnce);
        form.parts.back().bytes += piece;
      }
    }
    require(pieces.at_end());
  };
  try {
    run(work());
  } catch (const ApiError& error) {
    require(error.code == Code::kInvalidRequest && !error.message.empty());
    form.refused = error.message;
  }
  require(pieces.most_asked() <= kMostAtOnce);
  return form;
}

void check_form(const std::string& boundary, std::string_view body, std::string_view sizes) {
  const Form whole = read_form(boundary, body, {}), cut = read_form(boundary, body, sizes);
  require(cut.parts == whole.parts && cut.refused == whole.refused);
  size_t out = 0;
  for (const Part& part : whole.parts)
    out += part.name.size() + part.filename.value_or("").size() + part.bytes.size();
  require(out <= body.size());
  const Form skipped = read_form(boundary, body, sizes, true);
  require(skipped.refused == whole.refused && skipped.parts.size() == whole.parts.size());
  for (size_t i = 0; i < skipped.parts.size(); ++i)
    require(skipped.parts[i].name == whole.parts[i].name &&
            skipped.parts[i].filename == whole.parts[i].filename);
}

// 0xFF and a byte are many of that byte: what is larger than a buffer.
std::string expanded(std::string_view text) {
  std::string all;
  for (; !text.empty(); text.remove_prefix(1)) {
    if (text[0] != '\xff' || text.size() == 1 || all.size() > 150000) {
      all += text[0];
    } else {
      text.remove_prefix(1);
      all.append(8190, text[0]);
    }
  }
  return all;
}

void any_form(std::string_view text, std::string_view sizes) {
  const auto boundary = boundary_of(take_line(text));
  if (boundary) require(!boundary->empty() && boundary->size() <= 70);
  check_form(boundary.value_or("b"), expanded(text), sizes);
}

std::string in_quotes(std::string_view name) {
  std::string text = "\"";
  for (const char byte : name)
    text += byte == '"'    ? "%22"
            : byte == '\r' ? "%0D"
            : byte == '\n' ? "%0A"
            : byte == '%'  ? "_"
            : byte == '\\' ? "\\\\"
                           : std::string(1, byte);
  return text + '"';
}

// Lines are a part's name and its contents, by turns.
void good_form(std::string_view text, std::string_view sizes) {
  const std::string boundary = "----b", in_front = "\r\n--" + boundary;
  std::vector<Part> parts;
  std::string body;
  while (!text.empty()) {
    std::string name(take_line(text));
    Part part{name, std::nullopt, expanded(take_line(text))};
    if (name.size() > 1000 || ("\r\n" + part.bytes + "\r\n").find(in_front) != std::string::npos) return;
    std::replace(part.name.begin(), part.name.end(), '%', '_');
    if (name.size() % 2 == 1) part.filename = part.name;
    body += "--" + boundary + "\r\nContent-Disposition: form-data; name=" + in_quotes(name) +
            (part.filename ? "; filename=" + in_quotes(name) : "") + "\r\n\r\n" + part.bytes + "\r\n";
    parts.push_back(std::move(part));
  }
  body += "--" + boundary + "--\r\n";
  const Form form = read_form(boundary, body, sizes);
  require(form.refused.empty() && form.parts == parts);
}

struct Unpacked {
  std::string bytes;
  bool whole = false;     // to its end, with nothing after it
  size_t taken = 0;       // of what was packed
  bool too_much = false;  // it was not read any further
};

Unpacked unpack(std::string_view packed, int window, size_t most) {
  z_stream z{};
  require(::inflateInit2(&z, window) == Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  Unpacked all;
  char out[16384];
  for (int result = Z_OK; result == Z_OK;) {
    z.next_out = reinterpret_cast<Bytef*>(out);
    z.avail_out = sizeof out;
    result = ::inflate(&z, Z_NO_FLUSH);
    all.bytes.append(out, sizeof out - z.avail_out);
    all.taken = packed.size() - z.avail_in;
    all.whole = result == Z_STREAM_END && z.avail_in == 0;
    all.too_much = all.bytes.size() > most;
    if (all.too_much) break;
  }
  ::inflateEnd(&z);
  return all;
}

void check_gzip(std::string_view packed, std::string_view sizes, size_t at_once) {
  const size_t most = std::min(kMostUnpacked, at_once * kMostReads);
  const Unpacked expected = unpack(packed, 15 + 16, most);
  Pieces pieces(packed, sizes);
  std::string seen;
  bool whole = false;
  const auto work = [&]() -> asio::awaitable<void> {
    Gunzip gunzip(pieces.reader());
    std::string piece(at_once, '\0');
    while (seen.size() <= most) {
      const size_t n = co_await gunzip.read(piece.data(), piece.size());
      require(n <= piece.size());
      seen.append(piece, 0, n);
      whole = n == 0;
      if (whole) break;
    }
  };
  try {
    run(work());
  } catch (const ApiError& error) {
    require(error.code == Code::kInvalidRequest && !error.message.empty());
  }
  require(pieces.most_asked() <= 65536);
  const size_t common = std::min(seen.size(), expected.bytes.size());
  require(seen.compare(0, common, expected.bytes, 0, common) == 0);
  if (expected.too_much) {
    require(!whole);
  } else {
    require(whole == expected.whole && (!whole || pieces.at_end()));
    require(whole ? common == expected.bytes.size() : common == seen.size());
  }
}

void append_number(std::string& text, uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) text += static_cast<char>(number >> shift);
}

// With the right header and checksums: mutation alone never finds these.
std::string with_sums(std::string_view deflated) {
  const Unpacked raw = unpack(deflated, -15, kMostUnpacked);
  std::string packed("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  packed += deflated.substr(0, raw.taken);
  append_number(packed, static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(raw.bytes.data()),
                                                      static_cast<uInt>(raw.bytes.size()))));
  append_number(packed, static_cast<uint32_t>(raw.bytes.size()));
  return packed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view sizes = text.substr(1, 3), rest = text.substr(4);
  const size_t at_once = data[1] < 8 ? 1 + data[1] : 1000 * data[1];
  switch (data[0] % 4) {
    case 0:
      any_form(rest, sizes);
      break;
    case 1:
      good_form(rest, sizes);
      break;
    case 2:
      check_gzip(rest, sizes, at_once);
      break;
    default:
      check_gzip(with_sums(rest), sizes, at_once);
  }
  return 0;
}
