#include "pending.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "descriptor.h"
#include "isogate/backend.hpp"

namespace isogate::sdk::link {
namespace {

// A thread is in one call at a time, so one eventfd serves all its calls.
int waker_of_thread() {
  thread_local std::optional<const Descriptor> waker;
  if (!waker || waker->get() < 0) waker.emplace(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (waker->get() < 0) throw Error(ISOGATE_RESOURCE_EXHAUSTED, "cannot make an eventfd", EMFILE);
  return waker->get();
}

}  // namespace

Pending::Pending() : waker(waker_of_thread()) {}

void Pending::wake() {
  if (woken) return;
  woken = true;
  ::eventfd_write(waker, 1);
}

void Pending::calm() {
  eventfd_t count = 0;
  if (woken) ::eventfd_read(waker, &count);
  woken = false;
}

Fault Pending::accept(const Frame& frame) {
  updated = true;
  switch (frame.head.type) {
    case ISOGATE_RUNNER_RESULT:
      if (const Fault fault = read_result(frame.payload, result, message)) return fault;
      answered = true;
      return nullptr;
    case ISOGATE_RUNNER_READY:
      if (!connects || ready) return "a connection that was not requested";
      ready = true;
      return nullptr;
    case ISOGATE_RUNNER_REJOINED:
      if (!rejoins || rejoined) return "a state that was not requested";
      std::memcpy(&state, frame.payload.data(), sizeof state);
      if ((state.flags & ~ISOGATE_RUNNER_REJOINED_STDIN) != 0 || state.reserved != 0)
        return "a state with reserved bits";
      if (state.stdout_offset > INT64_MAX / 2 || state.stderr_offset > INT64_MAX / 2)
        return "an offset that no stream has";
      rejoined = true;
      return nullptr;
    case ISOGATE_RUNNER_ENTRIES:
      if (!lists) return "entries that were not requested";
      if (const Fault fault = check_entries(frame.payload)) return fault;
      return keep(in[0], frame.payload);
    default:
      return accept_bytes(frame);
  }
}

Fault Pending::accept_bytes(const Frame& frame) {
  std::string_view payload = frame.payload;
  isogate_runner_channel channel{};
  if (!take(payload, channel)) return "a frame of a wrong size";
  if (frame.head.type == ISOGATE_RUNNER_CREDIT) return accept_credit(channel);
  if (channel.bytes != 0) return "a frame with reserved bits";
  if (channel.channel != ISOGATE_RUNNER_STDOUT && channel.channel != ISOGATE_RUNNER_STDERR)
    return "bytes on an unknown channel";
  if (frame.head.type == ISOGATE_RUNNER_END) return accept_end(channel);
  if (lists) return "bytes in place of entries";
  if (rejoins && !rejoined) return "bytes before a state";
  return keep(in[channel.channel - ISOGATE_RUNNER_STDOUT], payload);
}

Fault Pending::accept_credit(const isogate_runner_channel& channel) {
  if (!feeds || channel.channel != ISOGATE_RUNNER_STDIN) return "credit that nobody can use";
  return credit.add(channel.bytes) ? nullptr : "more credit than any receiver has";
}

Fault Pending::accept_end(const isogate_runner_channel& channel) {
  Inbound& ended = in[channel.channel - ISOGATE_RUNNER_STDOUT];
  if (!ended.open) return "an end of nothing";
  ended.open = false;
  return nullptr;
}

Fault Pending::keep(Inbound& channel, std::string_view bytes) {
  if (!channel.open) return "bytes on a channel that is not open";
  if (!channel.window.accept(bytes.size())) return "more bytes than it has credit for";
  std::string& to = channel.arrived;
  const size_t wanted = to.size() + bytes.size();
  if (wanted > to.capacity())
    to.reserve(
        std::clamp<size_t>(to.capacity() * 2, wanted, std::max<size_t>(wanted, ISOGATE_RUNNER_WIDEST)));
  to.append(bytes);
  return nullptr;
}

}  // namespace isogate::sdk::link
