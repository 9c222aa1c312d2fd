// Parses what the gateway streams, in pieces of any size: the NDJSON events of /exec-stream, or of an exec's
// output, and server-sent events.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lib/error.h"

namespace isogate::cli {

// Lines of a stream, without their ends.
class LineSplitter {
 public:
  // `whole` false: it is longer than that, and left out. An error ends the feed.
  using Take = std::function<Result<void>(std::string_view line, bool whole)>;
  explicit LineSplitter(size_t longest) : longest_(longest) {}

  Result<void> feed(std::string_view bytes, const Take& take);
  // In the last one, which has no end yet.
  [[nodiscard]] bool in_line() const { return !whole_ || !line_.empty(); }
  [[nodiscard]] bool in_too_long() const { return !whole_; }

 private:
  void append(std::string_view bytes);

  size_t longest_;
  std::string line_;
  bool whole_ = true;
};

// Server-sent events that have data, with their name, if any. Comments and other fields are dropped.
class ServerEvents {
 public:
  using Take = std::function<Result<void>(const std::string& name, const std::string& data)>;
  ServerEvents(size_t longest, Take take) : longest_(longest), take_(std::move(take)), lines_(longest) {}

  // ISOGATE_LOST: one is longer than that. Or the error of `take`.
  Result<void> feed(std::string_view bytes);

 private:
  Result<void> take_line(std::string_view line);

  size_t longest_;
  Take take_;
  LineSplitter lines_;
  std::string name_, data_;
};

struct ExecEnd {
  std::string outcome;           // exited, signaled, timed_out, killed, oom_killed, unknown, not_started
  std::optional<int> exit_code;  // none with `unknown` and `not_started`
  bool truncated = false;
  std::optional<double> duration_sec;
  std::string signal;  // "SIGTERM", of `signaled`
  std::string reason;  // of `unknown` and `not_started`; may be empty

  [[nodiscard]] std::string text() const;  // "exited 3", "signaled SIGTERM", "killed"
};

class EventStream {
 public:
  struct Handlers {
    std::function<Result<void>(bool to_stderr, std::string_view bytes, bool partial)> output;
    std::function<Result<void>(std::string_view line)> line;  // every line as it came; may be empty
  };
  explicit EventStream(Handlers handlers) : handlers_(std::move(handlers)) {}

  // The next bytes of the stream. A line that is not an event, an event after `exit`, a line over
  // kMaxLineBytes: an error, ISOGATE_LOST. Unknown events are skipped.
  Result<void> feed(std::string_view bytes);

  // The stream has ended. ISOGATE_LOST when no exit event came: the outcome of the program is unknown.
  Result<ExecEnd> finish();
  // The same of output that may end before its exec does. ISOGATE_LOST inside a line.
  Result<std::optional<ExecEnd>> pause();

  // The offset behind the last byte that came of a stream, where events have offsets; else 0.
  [[nodiscard]] uint64_t next_offset(bool of_stderr) const { return next_offsets_[of_stderr ? 1 : 0]; }

  static constexpr size_t kMaxLineBytes = 16u << 20;

 private:
  Result<void> take_line(std::string_view line);
  Handlers handlers_;
  LineSplitter lines_{kMaxLineBytes};
  std::array<uint64_t, 2> next_offsets_{};
  std::optional<ExecEnd> end_;
};

// The ending fields that /exec and the exit event share. `json_object` is the text of an object.
Result<ExecEnd> parse_exec_end(std::string_view json_object);

}  // namespace isogate::cli
