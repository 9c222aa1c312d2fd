// Output bytes to NDJSON events: text cut at UTF-8 boundaries, anything else as base64; with `lines`
// one event per line, without its newline, longer ones in parts marked partial. One stream of bytes
// each for stdout and stderr. Not thread-safe.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace isogate::front {

class EventFramer {
 public:
  explicit EventFramer(bool lines) : lines_(lines) {}

  void add(bool error, std::string_view data, std::string& events);
  void flush(std::string& events);  // at the end of the output: what was held back

 private:
  static constexpr size_t kMaxLine = 65536;

  void add_lines(bool error, std::string& events);
  static void event(bool error, std::string_view data, bool partial, std::string& events);

  bool lines_;
  std::array<std::string, 2> held_;  // stdout, stderr: an incomplete character or line
};

}  // namespace isogate::front
