// Output bytes to NDJSON events: text cut at UTF-8 boundaries, anything else as base64; with `lines` one
// event per line, without its newline, longer ones in parts marked partial. One stream of bytes each for
// stdout and stderr. Events are larger than their bytes (a single newline becomes 48 bytes), so they are
// made in parts, as they are written. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/config/config.h"

namespace isogate::front {

class EventFramer {
 public:
  explicit EventFramer(bool lines) : lines_(lines) {}
  // Events have the offset of their first byte, from these on.
  explicit EventFramer(std::array<uint64_t, 2> offsets) : offsets_(offsets) {}

  // The most bytes of one add(), so that kept bytes stay within most_bytes().
  [[nodiscard]] size_t at_a_time() const { return lines_ ? 16384 : 32768; }
  // The most memory for both streams and one part of events, with room to grow.
  [[nodiscard]] uint64_t most_bytes() const { return lines_ ? 2 * kStreamBytes : kStreamBytes; }

  // Keeps the bytes. Then call next() until it returns no more.
  void add(bool error, std::string_view data) { held_[error ? 1 : 0] += data; }
  // Appends events of what is kept; about kPart bytes, or one event. False: there are no more for now.
  bool next(bool error, std::string& events);
  // At the end of the output: next() then also returns bytes that were held back.
  void finish() { finished_ = true; }

 private:
  static constexpr size_t kMaxLine = 65536;
  static constexpr size_t kPart = 32768;

  bool next_lines(bool error, std::string& events);
  void event(bool error, std::string_view data, bool partial, std::string& events);

  bool lines_ = false, finished_ = false;
  std::optional<std::array<uint64_t, 2>> offsets_;  // of what is held
  std::array<std::string, 2> held_;                 // stdout, stderr
};

}  // namespace isogate::front
