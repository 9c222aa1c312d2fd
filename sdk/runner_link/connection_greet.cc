#include <algorithm>
#include <array>

#include "connection.h"

#ifndef ISOGATE_VERSION
#define ISOGATE_VERSION "unknown"
#endif

namespace isogate::sdk::link {
namespace {

[[noreturn]] void unfit(const std::string& why) {
  throw Error(ISOGATE_UNAVAILABLE, "cannot talk to the runner: " + why);
}

void check(const isogate_runner_hello& hello) {
  if (hello.magic != ISOGATE_RUNNER_MAGIC) unfit("what answers is no isogate-runner");
  if (hello.major != ISOGATE_RUNNER_MAJOR)
    unfit("it speaks version " + std::to_string(hello.major) + " of the protocol, this gateway version " +
          std::to_string(ISOGATE_RUNNER_MAJOR));
  if (hello.reserved != 0) unfit("its hello has reserved bits");
}

}  // namespace

void Connection::greet(const Bound& bound, isogate_runner_hello& hello) {
  Pending greeter;
  greeter_ = &greeter;
  hello_ = &hello;
  isogate_runner_hello own{};
  own.magic = ISOGATE_RUNNER_MAGIC;
  own.major = ISOGATE_RUNNER_MAJOR;
  own.minor = ISOGATE_RUNNER_MINOR;
  set_text(own.build, ISOGATE_VERSION);
  send(greeter, bound, {}, [&](std::string& out) { FrameWriter(out, ISOGATE_RUNNER_HELLO, 0).add(own); });
  std::array<pollfd, 1> watched{{{bound.cancel_fd, POLLIN, 0}}};
  while (alive() && !greeter.news && watched[0].revents == 0 && Clock::now() < bound.until)
    wait(greeter, Awaits::kNews, watched, bound.until);
  leave(greeter);
  greeter_ = nullptr;
  if (!greeter.news && watched[0].revents != 0) throw Error(ISOGATE_CANCELLED, "cancelled");
  if (!greeter.news) unfit(alive() ? "it does not answer" : why());
  check(hello);
}

bool Connection::ping(Clock::time_point until) {
  Pending call;
  uint64_t number = 0;
  const bool sent = send(call, {.until = until}, {}, [&](std::string& out) {
    const std::lock_guard lock(mutex_);
    number = ++last_ping_;
    pings_.emplace(number, &call);
    FrameWriter(out, ISOGATE_RUNNER_PING, 0).add(number);
  });
  bool answered = false;
  while (sent && !answered) {
    wait(call, Awaits::kNews, {}, until);
    {
      const std::lock_guard lock(mutex_);
      answered = call.answered;
    }
    if (!alive() || Clock::now() >= until) break;
  }
  {
    const std::lock_guard lock(mutex_);
    pings_.erase(number);
  }
  leave(call);
  return answered;
}

}  // namespace isogate::sdk::link
