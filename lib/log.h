// The log: one JSON object per line, to stderr or a file. An event is a name in snake_case; variable data is
// in its fields.
//
//   log::info("sandbox_opened", {{"backend", name}, {"uid", uid}, {"took_ms", 1.5}});
//   {"ts":"2026-01-02T03:04:05.678Z","level":"info","process":"front","pid":7,"event":"sandbox_opened",…}
//
// An optional without a value is null. For any text, a line is valid JSON, pure ASCII except for harmless
// UTF-8, and holds no secret that redact.h finds; values over 2 KiB and lines over 4 KiB are cut and marked.
// (4 KiB is PIPE_BUF: processes that share a pipe never mix their lines.) More than 100 lines of one event
// per second are summed up in one line. When the reader of stderr stalls, lines are dropped and counted, not
// waited for. Any thread. Nothing here throws. Before start() lines go to stderr at level info. A process
// that logs to a pipe ignores SIGPIPE.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "lib/fd.h"

namespace isogate::log {

enum class Level : int { kDebug, kInfo, kWarn, kError };

// Text that the gateway itself made (an id, an address, the name of a setting): not searched for
// secrets.
struct Own {
  std::string_view text;
};

struct Field {  // borrows its texts for the call
  template <typename T>
  Field(std::string_view name, const T& v) noexcept : key(name), value(make(v)) {}

  std::string_view key;
  std::variant<std::string_view, int64_t, uint64_t, double, bool, Own, std::monostate> value;

 private:
  template <typename T>
  static decltype(value) make(const std::optional<T>& v) noexcept {
    return v ? make(*v) : std::monostate();
  }
  template <typename T>
  static decltype(value) make(const T& v) noexcept {
    if constexpr (std::same_as<T, bool> || std::same_as<T, Own>)
      return v;
    else if constexpr (std::floating_point<T>)
      return static_cast<double>(v);
    else if constexpr (std::signed_integral<T>)
      return static_cast<int64_t>(v);
    else if constexpr (std::unsigned_integral<T>)
      return static_cast<uint64_t>(v);
    else
      return std::string_view(v);
  }
};
using Fields = std::initializer_list<Field>;

// Names this process in every line and sets level (debug, info, warn, error) and file (empty:
// stderr), by open_file(). May be called again.
Result<void> start(std::string process, const std::string& level, const std::string& file);

// As start(), with a descriptor that another process opened (a parent with more rights).
Result<void> start(std::string process, const std::string& level, Fd out);

// Writes the sums of suppressed lines that are still due, and what record() gathered; before the process
// ends.
void flush() noexcept;

// For appending, made 0640. Only a regular file, never through a symlink, and without blocking: a FIFO, a
// socket or a device is refused.
Result<Fd> open_file(const std::string& path);

namespace detail {
extern std::atomic<int> threshold;
void write(Level level, std::string_view event, Fields fields) noexcept;
}  // namespace detail

inline bool enabled(Level level) noexcept {
  return static_cast<int>(level) >= detail::threshold.load(std::memory_order_relaxed);
}
inline void write(Level level, std::string_view event, Fields fields = {}) noexcept {
  if (enabled(level)) detail::write(level, event, fields);
}
inline void debug(std::string_view event, Fields fields = {}) noexcept {
  write(Level::kDebug, event, fields);
}
inline void info(std::string_view event, Fields fields = {}) noexcept { write(Level::kInfo, event, fields); }
inline void warn(std::string_view event, Fields fields = {}) noexcept { write(Level::kWarn, event, fields); }
inline void error(std::string_view event, Fields fields = {}) noexcept {
  write(Level::kError, event, fields);
}

// A line of a record that is kept whole: at any level, at any rate. Lines are gathered and written together,
// 4 KiB at most or at flush_records(), whichever comes first; any other line sends them ahead of itself.
void record(std::string_view event, Fields fields) noexcept;
void flush_records() noexcept;

// One line as it would be written now, without limits on the rate.
std::string format(Level level, std::string_view event, Fields fields);

}  // namespace isogate::log
