// Bytes to text and back: UTF-8, JSON strings, numbers, base64, percent-encoding; classes of characters;
// parts of a text.
// Pure functions, any thread. Fuzzed.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace isogate {

// Strict (RFC 3629): no overlong form, no surrogate, nothing above U+10FFFF. NUL is fine.
bool is_utf8(std::string_view bytes);

struct CodePoint {
  uint32_t value = 0;
  size_t size = 0;  // bytes it takes; 0: the text is empty or does not begin with a whole code point
};
CodePoint first_code_point(std::string_view text);

// At most `limit` bytes from the beginning, cut between code points.
std::string_view utf8_prefix(std::string_view text, size_t limit);

// Where a stream may be cut: the length of the longest prefix that does not end inside a sequence
// which later bytes could complete. An invalid sequence counts as complete. At most 3 bytes are
// left over.
size_t utf8_boundary(std::string_view bytes);

// Appends "…" with quotes; escapes what JSON asks for and nothing else. `utf8` must be UTF-8.
void append_json_string(std::string& out, std::string_view utf8);
// The same without the quotes; of text that comes in pieces each may be cut anywhere.
void append_json_text(std::string& out, std::string_view utf8);

// Whether arbitrary bytes go into JSON as text: they are UTF-8, and escaped they are no longer than twice
// their length and 4 KiB; beyond that base64 is shorter. Newlines and quotes, two bytes each, never exceed
// this; control characters, six each, can.
bool goes_as_text(std::string_view bytes);

// The same for bytes that come in pieces, cut anywhere.
class TextJudge {
 public:
  void add(std::string_view piece);
  // Of all pieces together.
  [[nodiscard]] bool utf8() const { return utf8_ && cut_.empty(); }
  [[nodiscard]] bool as_text() const;

 private:
  bool utf8_ = true;  // without cut_
  std::string cut_;   // the beginning of a sequence; at most 3 bytes
  uint64_t bytes_ = 0, escapes_ = 0;
};

int hex_value(char digit);  // -1: none

// Of ASCII, whatever the locale.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
constexpr bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
constexpr bool is_alnum(char c) { return is_digit(c) || is_upper(c) || is_lower(c); }
constexpr char to_lower(char c) { return is_upper(c) ? static_cast<char>(c + 32) : c; }
std::string to_lower(std::string text);
bool is_digits(std::string_view text);  // one at least
// At least one letter, digit or character of `also`, and nothing else.
bool is_alnum_or(std::string_view text, std::string_view also);
// The same, a letter or digit first; at most `most` bytes.
bool is_name(std::string_view text, std::string_view also, size_t most = 63);

// The number that all of the text is: no blanks, no `+`. nullopt: it is none, or none of a T.
template <typename T>
std::optional<T> number_in(std::string_view text, int base = 10) {
  T number{};
  std::from_chars_result read;
  const char* const end = text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>)
    read = std::from_chars(text.data(), end, number);
  else
    read = std::from_chars(text.data(), end, number, base);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

// What follows "NAME:" on the first line that begins so, as in /proc/PID/status, without the blanks around.
std::optional<std::string_view> line_field(std::string_view text, std::string_view name);

// Host and port of "HOST:PORT" or "[HOST]:PORT", cut at the last colon; without one the port is empty.
std::pair<std::string_view, std::string_view> split_address(std::string_view text);
std::string join_address(std::string_view host, std::string_view port);  // brackets around what has a colon

// What a URL or a Host header has for a server: "HOST", "HOST:PORT", "[HOST]" or "[HOST]:PORT". Only cut, at
// the first colon or the bracket; nullopt: the closing bracket is missing.
struct HostText {
  std::string_view host;  // may be empty, or no host
  std::string_view rest;  // "" or ":PORT"; behind a bracket it may be anything
  bool bracketed = false;
};
std::optional<HostText> split_host(std::string_view text);

// Cuts off what `rest` has before the separator, or all of it, and the separator. Empty parts are parts.
std::string_view next_part(std::string_view& rest, char separator);
// The parts between the separators; of an empty text one empty part.
std::vector<std::string_view> split(std::string_view text, char separator);

// The text of each element, with `between` between them; an empty one at the beginning has none behind it.
template <typename Range, typename TextOf = std::identity>
std::string join(const Range& range, std::string_view between, TextOf text_of = {}) {
  std::string all;
  for (const auto& each : range) all.append(all.empty() ? "" : between).append(std::invoke(text_of, each));
  return all;
}

// The permission bits of a mode: "0640".
std::string octal_mode(unsigned mode);

// Whether it leads nowhere but below: parts between slashes, none of them empty, `.` or `..`, and no NUL.
bool is_path_below(std::string_view path);

// Whether `path` is `directory`, or lies below it. Both are absolute, without `.`, `..` and empty parts.
bool lies_in(std::string_view path, std::string_view directory);

std::string_view trimmed(std::string_view text, std::string_view blanks = " \t");

// RFC 4648, section 4, with padding.
std::string base64_encode(std::string_view bytes);
void append_base64(std::string& out, std::string_view bytes);
std::string base64url_encode(std::string_view bytes);  // section 5, without padding

// Strict: padding required, no white space, unused bits zero; otherwise nullopt.
std::optional<std::string> base64_decode(std::string_view text);

// A foreign name for an error message or a log line: control and invisible characters, what is not
// UTF-8, and the backslash are escaped (\n, \x1b); cut to about `max` bytes, then "…".
std::string printable(std::string_view bytes, size_t max);

// Everything except RFC 3986's unreserved characters, and `also`, as %XX with these digits.
std::string percent_encode(std::string_view text, std::string_view also = {},
                           const char* digits = "0123456789ABCDEF");

// %XX decoded exactly once, `+` is itself; nullopt when a % lacks its two hex digits.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace isogate
