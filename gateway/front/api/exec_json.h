// What a response keeps of an exec's output, and how it ended, as JSON: the members that all its responses
// share. The front's one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/exec/exec.h"
#include "gateway/front/exec/ndjson.h"
#include "gateway/front/http/json_answer.h"

namespace isogate::front {

// `,"key":value` behind what is there.
void append_number(std::string& out, std::string_view key, uint64_t value);
void append_text(std::string& out, std::string_view key, std::string_view utf8);

// The output in a response; it may be cut at its end or at its beginning.
struct KeptOutput {
  std::string out, error;
};
// Removes the rest of a character that a cap has cut, so that text stays text.
void trim_cut_end(std::string& kept);
void trim_cut_beginning(std::string& kept);

// Keeps the first `cap` bytes of each stream. They are claimed before the program starts: afterwards it is
// too late to refuse.
class Captured : public Output {
 public:
  Captured(uint64_t cap, Exchange& exchange) : cap_(cap), exchange_(exchange) {}
  Task<void> started(const ExecAnswer&) override {
    exchange_.check_admitted();
    exchange_.memory.add(2 * cap_);
    co_return;
  }
  Task<void> bytes(bool error, std::string_view data) override {
    std::string& to = error ? kept_.error : kept_.out;
    to.append(data.substr(0, cap_ - to.size()));
    co_return;
  }
  [[nodiscard]] bool full(bool error) const override {
    return (error ? kept_.error : kept_.out).size() >= cap_;
  }

  // Gives back what was claimed and not used.
  const KeptOutput& ended(const ExecAnswer& answer) {
    ByteShare& memory = exchange_.memory;
    memory.hold(memory.bytes() - 2 * cap_ + kept_.out.size() + kept_.error.size());
    if (kept_.out.size() < answer.stdout_bytes) trim_cut_end(kept_.out);
    if (kept_.error.size() < answer.stderr_bytes) trim_cut_end(kept_.error);
    return kept_;
  }

 private:
  uint64_t cap_;
  Exchange& exchange_;
  KeptOutput kept_;
};

// The members of how it ended, without the braces and the artifacts.
void append_end(std::string& out, const ExecAnswer& answer, bool truncated);
// `,"error":{…}`: why it was not started, if it was not.
void append_not_started(std::string& out, const std::optional<ApiError>& why);
// `,"artifacts":[…]`
Task<void> write_artifacts(JsonAnswer& to, const ExecAnswer& answer);
// The whole answer; of an unknown outcome the error outcome_unknown, with that object in its details.
Task<void> send_answer(Exchange& exchange, const ExecAnswer& answer, const KeptOutput& kept);

// The first event of a stream, without its newline.
std::string start_event(const ExecAnswer& so_far);
// The events of what the framer keeps of one stream: made and written in parts, so that there is one at a
// time.
Task<void> write_events(Exchange& exchange, EventFramer& framer, bool error);
// The last event, which ends the answer.
Task<void> send_exit(Exchange& exchange, const ExecAnswer& answer, bool truncated,
                     const std::optional<ApiError>& not_started);

}  // namespace isogate::front
