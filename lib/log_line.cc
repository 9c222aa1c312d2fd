#include "lib/log_line.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>

#include "lib/redact.h"
#include "lib/text.h"

namespace isogate::log {
namespace {

constexpr size_t kMaxLine = PIPE_BUF - kLineReserve;
constexpr size_t kMaxValue = 2048, kMaxKey = 64, kMaxRedacted = 65536;
constexpr std::string_view kCut = ",\"cut\":true}";

void escape(std::string& out, uint32_t unit) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(unit >> shift) & 15];
}

// Steers a terminal, hides or reorders what a reader sees.
bool harmful(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE0FFF);
}

void add_code_point(std::string& out, std::string_view text, CodePoint c) {
  if (c.size == 0) {
    out += "\\ufffd";
  } else if (c.value == '"' || c.value == '\\') {
    out += '\\';
    out += static_cast<char>(c.value);
  } else if (c.value == '\n') {
    out += "\\n";
  } else if (c.value == '\t') {
    out += "\\t";
  } else if (!harmful(c.value)) {
    out += text.substr(0, c.size);
  } else if (c.value < 0x10000) {
    escape(out, c.value);
  } else {
    escape(out, 0xD800 + ((c.value - 0x10000) >> 10));
    escape(out, 0xDC00 + ((c.value - 0x10000) & 0x3FF));
  }
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; });
}

// A JSON string of at most `room` bytes, quotes included; false when the text had to be cut.
bool add_string(std::string& out, std::string_view text, size_t most, size_t room) {
  if (text.size() <= most && text.size() + 2 <= room && is_plain(text)) {
    out.append(1, '"').append(text).append(1, '"');
    return true;
  }
  size_t start = out.size(), whole = text.size();
  std::string mark = "…[" + std::to_string(whole) + " bytes]";
  size_t end = start + std::max(room, mark.size() + 16) - mark.size() - 14;
  out += '"';
  while (!text.empty() && out.size() < end && whole - text.size() < most) {
    CodePoint c = first_code_point(text);
    add_code_point(out, text, c);
    text.remove_prefix(std::max<size_t>(c.size, 1));
  }
  if (!text.empty()) out += mark;
  out += '"';
  return text.empty();
}

std::string_view redaction_window(std::string_view text) {
  if (text.size() <= kMaxRedacted) return text;
  std::string_view window = text.substr(0, kMaxRedacted);
  size_t last = window.find_last_of(" \t\r\n");  // removes what may be half a secret
  return window.substr(0, last == std::string_view::npos ? 0 : last);
}

void add_text(std::string& out, std::string_view key, std::string_view text, size_t room) {
  if (is_secret_name(key) && !text.empty()) text = "[redacted:name]";
  std::string clean = redact(redaction_window(text));
  if (text.size() > kMaxRedacted) clean += "…[of " + std::to_string(text.size()) + " bytes]";
  add_string(out, clean, kMaxValue, room);
}

template <typename Number>
void add_number(std::string& out, Number number) {
  char digits[32];
  auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  out.append(digits, end);
}

void add_value(std::string& out, const Field& field, size_t room) {
  if (auto* own = std::get_if<Own>(&field.value)) return void(add_string(out, own->text, kMaxValue, room));
  if (auto* text = std::get_if<std::string_view>(&field.value)) return add_text(out, field.key, *text, room);
  if (std::holds_alternative<std::monostate>(field.value)) {
    out += "null";
  } else if (auto* flag = std::get_if<bool>(&field.value)) {
    out += *flag ? "true" : "false";
  } else if (auto* real = std::get_if<double>(&field.value)) {
    std::isfinite(*real) ? add_number(out, *real) : void(out += "null");
  } else if (auto* integer = std::get_if<int64_t>(&field.value)) {
    add_number(out, *integer);
  } else {
    add_number(out, std::get<uint64_t>(field.value));
  }
}

void add_key(std::string& out, std::string_view key) {
  static constexpr std::string_view kReserved[] = {"ts", "level", "process", "pid", "event", "cut"};
  out += ',';
  add_string(out, key, kMaxKey, kMaxLine);
  if (std::find(std::begin(kReserved), std::end(kReserved), key) != std::end(kReserved))
    out.insert(out.size() - 1, "_");
  out += ':';
}

void add_time(std::string& out) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  thread_local time_t second = -1;
  thread_local char text[40];
  thread_local size_t size = 0;
  if (now.tv_sec != second) {
    tm utc{};
    ::gmtime_r(&now.tv_sec, &utc);
    size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S.", &utc);
    second = now.tv_sec;
  }
  const auto millis = static_cast<int>(now.tv_nsec / 1000000);
  const char digits[] = {static_cast<char>('0' + millis / 100), static_cast<char>('0' + millis / 10 % 10),
                         static_cast<char>('0' + millis % 10), 'Z'};
  out.append(text, size).append(digits, sizeof digits);
}

}  // namespace

std::string line_of(std::string_view process, Level level, std::string_view event, Fields fields) {
  std::string line, part;
  line.reserve(512);
  line += "{\"ts\":\"";
  add_time(line);
  line.append("\",\"level\":\"").append(kLevels[static_cast<int>(level)]).append("\",\"process\":");
  add_string(line, process, kMaxKey, kMaxLine);
  line.append(",\"pid\":").append(std::to_string(::getpid())).append(",\"event\":");
  add_text(line, "event", event, kMaxLine / 2);
  for (const Field& field : fields) {
    part.clear();
    add_key(part, field.key);
    size_t taken = line.size() + part.size() + kCut.size() + 1;
    if (taken + 64 > kMaxLine) return line.append(kCut);
    add_value(part, field, kMaxLine - taken);
    line += part;
  }
  return line += '}';
}

}  // namespace isogate::log
