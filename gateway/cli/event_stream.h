// The answer of /exec-stream, taken apart: NDJSON events, as they come, however they are cut.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lib/error.h"

namespace isogate::cli {

struct ExecEnd {
  std::string outcome;           // exited, signaled, timed_out, killed, oom_killed, unknown
  std::optional<int> exit_code;  // none with `unknown`
  bool truncated = false;
  std::optional<double> duration_sec;
  std::string reason;  // of `unknown`; may be empty
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

  // The stream has ended. ISOGATE_LOST when no exit event came: what became of the program is unknown.
  Result<ExecEnd> finish();

  static constexpr size_t kMaxLineBytes = 16u << 20;

 private:
  Result<void> take_line(std::string_view line);
  Handlers handlers_;
  std::string pending_;
  std::optional<ExecEnd> end_;
};

// The ending fields that /exec and the exit event share. `json_object` is the text of an object.
Result<ExecEnd> parse_exec_end(std::string_view json_object);

}  // namespace isogate::cli
