#include "runner/agent/calls/call.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>

#include "lib/text.h"

namespace isogate::agent {

Answer::Answer(const Error& error) : message(error.message) {
  result.status = error.status == ISOGATE_OK ? ISOGATE_INTERNAL : error.status;
  result.os_errno = error.os_errno;
}

Answer Answer::of(const std::function<Answer()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Answer(Error{ISOGATE_RESOURCE_EXHAUSTED, ENOMEM, "out of memory"});
  } catch (const std::exception& error) {
    return Answer(Error{ISOGATE_INTERNAL, 0, error.what()});
  }
}

std::string Answer::encoded() const {
  const std::string_view text =
      result.status == ISOGATE_OK ? message : utf8_prefix(message, link::kMaxMessage);
  return link::encode_result(result, text);
}

Error no_thread() {
  return {ISOGATE_RESOURCE_EXHAUSTED, EAGAIN,
          "cannot start a thread for this call: this sandbox's limit on processes (pids) is reached"};
}

Call::Call(Place& place, Wire wire, const link::Frame& frame)
    : place_(place),
      wire_(wire),
      stream_(frame.head.stream),
      given_((frame.head.flags & ISOGATE_RUNNER_WITH_DESCRIPTORS) != 0),
      inlet_(wire, stream_),
      outlet_(wire, stream_, ISOGATE_RUNNER_STDOUT),
      weight_(frame.head.size) {}

Result<void> Call::make_cancel() {
  auto event = make_event();
  if (!event) return event.error();
  if (event->get() >= place_.most_descriptors())
    return Error{ISOGATE_RESOURCE_EXHAUSTED, EMFILE, "this sandbox's limit on open files is reached"};
  cancel_ = std::move(*event);
  return {};
}

bool Call::data(uint32_t channel, std::string_view bytes) {
  return channel == ISOGATE_RUNNER_STDIN && inlet_.put(bytes);
}

bool Call::end(uint32_t channel) { return channel == ISOGATE_RUNNER_STDIN && inlet_.end(); }

bool Call::credit(uint32_t channel, uint32_t bytes) {
  return channel == ISOGATE_RUNNER_STDOUT && outlet_.add_credit(bytes);
}

void Call::give_up(Credit& credit, bool at_once) {
  credit.give_up(at_once ? std::chrono::milliseconds(0) : kDeliverPatience);
}

void Call::cancel(bool at_once) {
  Clock::rep never = 0;
  cancelled_at_.compare_exchange_strong(never, Clock::now().time_since_epoch().count());
  if (cancel_) signal_event(cancel_.get());
  give_up(outlet_.waiting(), at_once);
}

void Call::pump(uint32_t channel, std::span<char> buffer) {
  if (channel == ISOGATE_RUNNER_STDIN) inlet_.pump();
  if (channel == ISOGATE_RUNNER_STDOUT) outlet_.pump(buffer);
}

Clock::duration Call::overdue() const {
  const Clock::rep since = cancelled_at_;
  if (since == 0) return {};
  return Clock::now().time_since_epoch() - Clock::duration(since);
}

}  // namespace isogate::agent
