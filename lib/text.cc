#include "lib/text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace isogate {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101ull;
constexpr uint64_t kHighs = 0x8080808080808080ull;

uint64_t load8(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// The first byte is the lowest, on any machine.
constexpr uint64_t little_endian(uint64_t word) {
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

uint8_t byte_at(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

bool continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// What follows a lead byte: length of the sequence (0: not a lead) and the range of its second byte,
// which excludes overlong forms, surrogates and everything above U+10FFFF.
struct Lead {
  uint8_t length, low, high;
};

Lead lead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// The length of the valid sequence at the start of `bytes`, 0 when there is none.
size_t sequence(std::string_view bytes) {
  Lead kind = lead(byte_at(bytes, 0));
  if (kind.length <= 1) return kind.length;
  if (bytes.size() < kind.length) return 0;
  if (byte_at(bytes, 1) < kind.low || byte_at(bytes, 1) > kind.high) return 0;
  for (size_t i = 2; i < kind.length; ++i)
    if (!continuation(byte_at(bytes, i))) return 0;
  return kind.length;
}

// The same for the common cases, from eight bytes at once: all ASCII, or a character of two or three
// bytes whose lead allows every second byte. 0: none of these.
size_t quick_sequence(uint64_t word) {
  if (!(word & kHighs)) return 8;
  uint64_t first = little_endian(word) & 0xFF;
  if (first >= 0xE1 && first <= 0xEC && (little_endian(word) & 0xC0C000) == 0x808000) return 3;
  if (first >= 0xC2 && first <= 0xDF && (little_endian(word) & 0xC000) == 0x8000) return 2;
  return 0;
}

// True when `tail` is the beginning of a sequence that later bytes could complete.
bool unfinished(std::string_view tail) {
  Lead kind = lead(byte_at(tail, 0));
  if (kind.length <= tail.size()) return false;
  if (tail.size() > 1 && (byte_at(tail, 1) < kind.low || byte_at(tail, 1) > kind.high)) return false;
  return tail.size() < 3 || continuation(byte_at(tail, 2));
}

bool must_escape(uint8_t byte) { return byte < 0x20 || byte == '"' || byte == '\\'; }

// A bit in each byte that is below 0x20, a quote or a backslash; exact in the lowest such byte.
uint64_t escapes_in(uint64_t word) {
  uint64_t control = (word - kOnes * 0x20) & ~word;
  uint64_t quote = word ^ (kOnes * '"');
  uint64_t slash = word ^ (kOnes * '\\');
  return (control | ((quote - kOnes) & ~quote) | ((slash - kOnes) & ~slash)) & kHighs;
}

// Index of the first byte from `i` on that JSON must escape, or the size.
size_t plain_until(std::string_view text, size_t i) {
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t found = escapes_in(little_endian(load8(text.data() + i)));
    if (found) return i + static_cast<size_t>(__builtin_ctzll(found)) / 8;
  }
  while (i < text.size() && !must_escape(byte_at(text, i))) ++i;
  return i;
}

constexpr char kHex[] = "0123456789abcdef";

constexpr char kEscapeLetters[] = "btn\0fr";  // of the control characters from \b on

// What stands behind the backslash; 0: the byte has only its number.
char escape_letter(uint8_t byte) {
  if (byte >= 0x20) return static_cast<char>(byte);
  return byte >= '\b' && byte <= '\r' ? kEscapeLetters[byte - '\b'] : '\0';
}

void append_escape(std::string& out, uint8_t byte) {
  if (const char escape[] = {'\\', escape_letter(byte)}; escape[1] != '\0') {
    out.append(escape, sizeof escape);
    return;
  }
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

// How many bytes longer it is in JSON.
size_t bytes_of_escapes(std::string_view text) {
  size_t more = 0;
  for (size_t i = plain_until(text, 0); i < text.size(); i = plain_until(text, i))
    for (; i < text.size() && must_escape(byte_at(text, i)); ++i)
      more += escape_letter(byte_at(text, i)) != '\0' ? 1 : 5;
  return more;
}

constexpr size_t kTextSlack = 4096;

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<char, 8192> make_pairs() {  // two digits for each value of 12 bits
  std::array<char, 8192> pairs{};
  for (size_t i = 0; i < 4096; ++i) {
    pairs[2 * i] = kBase64[i >> 6];
    pairs[2 * i + 1] = kBase64[i & 63];
  }
  return pairs;
}
constexpr std::array<char, 8192> kPairs = make_pairs();

constexpr std::array<uint8_t, 256> make_values() {
  std::array<uint8_t, 256> values{};
  for (uint8_t& value : values) value = 0xFF;
  for (uint8_t i = 0; i < 64; ++i) values[static_cast<uint8_t>(kBase64[i])] = i;
  return values;
}
constexpr std::array<uint8_t, 256> kValues = make_values();

uint32_t value_at(std::string_view text, size_t i) { return kValues[byte_at(text, i)]; }

// Code points that a terminal or an editor acts on, or that cannot be seen.
bool invisible(uint32_t point) {
  struct Range {
    uint32_t first, last;
  };
  static constexpr Range kRanges[] = {
      {0x00, 0x1F},     {0x7F, 0xA0},         // controls, no-break space
      {0xAD, 0xAD},     {0x061C, 0x061C},     // soft hyphen, Arabic letter mark
      {0x180E, 0x180E}, {0x2000, 0x200F},     // spaces of other widths, zero width, direction marks
      {0x2028, 0x202F}, {0x205F, 0x206F},     // separators, direction overrides, isolates
      {0x3000, 0x3000}, {0xE000, 0xF8FF},     // wide space, private use
      {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF},     // variation selectors, byte order mark
      {0xFFF0, 0xFFFF}, {0xE0000, 0x10FFFF},  // specials, tags, private planes
  };
  for (const Range& range : kRanges)
    if (point >= range.first && point <= range.last) return true;
  return false;
}

void append_hex_escape(std::string& out, uint8_t byte) {
  out += "\\x";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

}  // namespace

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::string to_lower(std::string text) {
  for (char& c : text) c = to_lower(c);
  return text;
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

bool is_alnum_or(std::string_view text, std::string_view also) {
  const auto fits = [also](char c) { return is_alnum(c) || also.find(c) != std::string_view::npos; };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

bool is_name(std::string_view text, std::string_view also, size_t most) {
  return text.size() <= most && is_alnum_or(text, also) && is_alnum(text[0]);
}

std::optional<std::string_view> line_field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = next_part(text, '\n');
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    return trimmed(line.substr(name.size() + 1));
  }
  return std::nullopt;
}

std::pair<std::string_view, std::string_view> split_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1)};
}

std::optional<HostText> split_host(std::string_view text) {
  if (!text.starts_with('[')) {
    const size_t colon = std::min(text.find(':'), text.size());
    return HostText{text.substr(0, colon), text.substr(colon)};
  }
  const size_t close = text.find(']');
  if (close == std::string_view::npos) return std::nullopt;
  return HostText{text.substr(1, close - 1), text.substr(close + 1), true};
}

std::string join_address(std::string_view host, std::string_view port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  return std::string(v6 ? "[" : "").append(host).append(v6 ? "]:" : ":").append(port);
}

std::string_view next_part(std::string_view& rest, char separator) {
  const std::string_view part = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  return part;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size(); at += parts.back().size() + 1)
    parts.push_back(text.substr(at, text.find(separator, at) - at));
  return parts;
}

std::string octal_mode(unsigned mode) {
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "%04o", mode & 07777U);
  return digits.data();
}

bool is_path_below(std::string_view path) {
  for (const std::string_view part : split(path, '/'))
    if (part.empty() || part == "." || part == "..") return false;
  return path.find('\0') == std::string_view::npos;
}

bool lies_in(std::string_view path, std::string_view directory) {
  if (directory == "/" || path == directory) return true;
  return path.starts_with(directory) && path[directory.size()] == '/';
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

CodePoint first_code_point(std::string_view text) {
  const size_t size = text.empty() ? 0 : sequence(text);
  if (size == 0) return {};
  uint32_t value = byte_at(text, 0) & (size == 1 ? 0x7Fu : 0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) value = (value << 6) | (byte_at(text, i) & 0x3Fu);
  return {value, size};
}

std::string_view utf8_prefix(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && continuation(byte_at(text, limit))) --limit;
  return text.substr(0, limit);
}

bool is_utf8(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    size_t length = i + 8 <= bytes.size() ? quick_sequence(load8(bytes.data() + i)) : 0;
    if (length == 0) length = sequence(bytes.substr(i));
    if (length == 0) return false;
    i += length;
  }
  return true;
}

size_t utf8_boundary(std::string_view bytes) {
  size_t most = bytes.size() < 3 ? bytes.size() : 3;
  for (size_t back = 1; back <= most; ++back) {
    size_t at = bytes.size() - back;
    if (continuation(byte_at(bytes, at))) continue;
    return unfinished(bytes.substr(at)) ? at : bytes.size();
  }
  return bytes.size();
}

void append_json_text(std::string& out, std::string_view utf8) {
  for (size_t i = 0; i < utf8.size();) {
    size_t end = plain_until(utf8, i);
    out.append(utf8.data() + i, end - i);
    i = end;
    for (; i < utf8.size() && must_escape(byte_at(utf8, i)); ++i) append_escape(out, byte_at(utf8, i));
  }
}

void append_json_string(std::string& out, std::string_view utf8) {
  out.reserve(out.size() + utf8.size() + 2);
  out += '"';
  append_json_text(out, utf8);
  out += '"';
}

bool goes_as_text(std::string_view bytes) {
  constexpr size_t kLongest = 6;
  if (!is_utf8(bytes)) return false;
  if (bytes.size() * kLongest <= bytes.size() * 2 + kTextSlack) return true;
  return bytes_of_escapes(bytes) <= bytes.size() + kTextSlack;
}

void TextJudge::add(std::string_view piece) {
  bytes_ += piece.size();
  if (!utf8_) return;
  escapes_ += bytes_of_escapes(piece);  // of single bytes, wherever it is cut
  while (!cut_.empty() && !piece.empty()) {
    cut_ += piece.front();
    piece.remove_prefix(1);
    if (utf8_boundary(cut_) == 0) continue;
    utf8_ = is_utf8(cut_);
    cut_.clear();
  }
  const size_t whole = utf8_boundary(piece);
  utf8_ = utf8_ && is_utf8(piece.substr(0, whole));
  cut_.append(piece.substr(whole));
}

bool TextJudge::as_text() const { return utf8() && escapes_ <= bytes_ + kTextSlack; }

void append_base64(std::string& out, std::string_view bytes) {
  size_t start = out.size();
  out.resize(start + (bytes.size() + 2) / 3 * 4);
  char* to = out.data() + start;
  size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3, to += 4) {
    uint32_t bits =
        (uint32_t{byte_at(bytes, i)} << 16) | (uint32_t{byte_at(bytes, i + 1)} << 8) | byte_at(bytes, i + 2);
    std::memcpy(to, &kPairs[2 * (bits >> 12)], 2);
    std::memcpy(to + 2, &kPairs[2 * (bits & 0xFFF)], 2);
  }
  if (i == bytes.size()) return;
  bool two = i + 2 == bytes.size();
  uint32_t bits = (uint32_t{byte_at(bytes, i)} << 16) | (two ? uint32_t{byte_at(bytes, i + 1)} << 8 : 0);
  to[0] = kBase64[bits >> 18];
  to[1] = kBase64[(bits >> 12) & 63];
  to[2] = two ? kBase64[(bits >> 6) & 63] : '=';
  to[3] = '=';
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  append_base64(out, bytes);
  return out;
}

std::string base64url_encode(std::string_view bytes) {
  std::string out = base64_encode(bytes);
  while (out.ends_with('=')) out.pop_back();
  std::replace(out.begin(), out.end(), '+', '-');
  std::replace(out.begin(), out.end(), '/', '_');
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  if (text.empty()) return std::string();
  size_t pad = text.back() != '=' ? 0 : text[text.size() - 2] != '=' ? 1 : 2;
  size_t whole = text.size() / 4 - (pad ? 1 : 0);
  std::string out(whole * 3 + (pad ? 3 - pad : 0), '\0');
  char* to = out.data();
  uint32_t bad = 0;
  for (size_t i = 0; i < whole * 4; i += 4) {
    uint32_t a = value_at(text, i), b = value_at(text, i + 1), c = value_at(text, i + 2),
             d = value_at(text, i + 3);
    bad |= a | b | c | d;
    uint32_t bits = (a << 18) | (b << 12) | (c << 6) | d;
    *to++ = static_cast<char>(bits >> 16);
    *to++ = static_cast<char>(bits >> 8);
    *to++ = static_cast<char>(bits);
  }
  if (pad) {
    size_t i = whole * 4;
    uint32_t a = value_at(text, i), b = value_at(text, i + 1), c = pad == 1 ? value_at(text, i + 2) : 0;
    bad |= a | b | c;
    if (pad == 2 ? (b & 15) : (c & 3)) return std::nullopt;
    *to++ = static_cast<char>((a << 2) | (b >> 4));
    if (pad == 1) *to = static_cast<char>((b << 4) | (c >> 2));
  }
  if (bad & 0x80) return std::nullopt;
  return out;
}

std::string percent_encode(std::string_view text, std::string_view also, const char* digits) {
  std::string out;
  for (const char c : text) {
    if (is_alnum_or({&c, 1}, "-_.~") || also.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += '%';
      out += digits[static_cast<unsigned char>(c) >> 4];
      out += digits[c & 15];
    }
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::string printable(std::string_view bytes, size_t max) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    if (out.size() >= max) return out + "\xE2\x80\xA6";
    CodePoint point = first_code_point(bytes.substr(i));
    std::string_view piece = bytes.substr(i, point.size ? point.size : 1);
    i += piece.size();
    if (point.size && !invisible(point.value) && piece != "\\") {
      out += piece;
    } else if (piece == "\\") {
      out += "\\\\";
    } else if (piece == "\n" || piece == "\r" || piece == "\t") {
      append_escape(out, byte_at(piece, 0));
    } else {
      for (char c : piece) append_hex_escape(out, static_cast<uint8_t>(c));
    }
  }
  return out;
}

}  // namespace isogate
