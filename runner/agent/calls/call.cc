#include "runner/agent/calls/call.h"

#include <algorithm>
#include <cerrno>

#include "lib/text.h"

namespace isogate::agent {
namespace {

constexpr std::chrono::milliseconds kDeliverPatience{5000};  // for a slow reader, once the call is cancelled

}  // namespace

Answer::Answer(const Error& error) : message(error.message) {
  result.status = error.status == ISOGATE_OK ? ISOGATE_INTERNAL : error.status;
  result.os_errno = error.os_errno;
}

std::string Answer::encoded() const {
  const std::string_view text =
      result.status == ISOGATE_OK ? message : utf8_prefix(message, link::kMaxMessage);
  return link::encode_result(result, text);
}

Call::Call(Place& place, Wire wire, uint32_t stream)
    : place_(place), wire_(wire), stream_(stream), inlet_(wire, stream) {}

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

void Call::give_up(Credit& credit, bool at_once) {
  credit.give_up(at_once ? std::chrono::milliseconds(0) : kDeliverPatience);
}

void Call::cancel(bool) {
  Clock::rep never = 0;
  cancelled_at_.compare_exchange_strong(never, Clock::now().time_since_epoch().count());
  if (cancel_) signal_event(cancel_.get());
}

void Call::pump(uint32_t channel, std::span<char>) {
  if (channel == ISOGATE_RUNNER_STDIN) inlet_.pump();
}

Clock::duration Call::overdue() const {
  const Clock::rep since = cancelled_at_;
  if (since == 0) return {};
  return Clock::now().time_since_epoch() - Clock::duration(since);
}

}  // namespace isogate::agent
