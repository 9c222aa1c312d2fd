// One running call: what the frames of its stream brought and its thread has not taken yet.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "credit.h"
#include "wire.h"

namespace isogate::sdk::link {

struct Inbound {      // a channel of bytes from the runner
  bool open = false;  // the request asked for it, without a descriptor
  ReceiveWindow window;
  std::string arrived;  // never more than ISOGATE_RUNNER_WIDEST bytes
};

// Belongs to the thread of its call and may lie on its stack. While a Connection knows it, the connection's
// mutex guards all of it but `waker`.
struct Pending {
  Pending();
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  // What its frames may be; set before its request is sent.
  bool lists = false;         // ENTRIES come on `in[0]`
  bool feeds = false;         // DATA goes out, CREDIT comes
  bool connects = false;      // READY comes
  bool rejoins = false;       // REJOINED comes, before any DATA
  std::array<Inbound, 2> in;  // stdout, stderr
  uint32_t stream = 0;        // given when the request is sent

  // What came.
  SendCredit credit;  // for DATA
  bool ready = false;
  bool rejoined = false;
  isogate_runner_rejoined state{};
  bool answered = false;
  isogate_runner_result result{};
  std::string message;
  bool updated = false;  // something came since it was last taken

  // Its thread's alone: set once it is cancelled, it ends the connection if the call has not ended by then.
  std::chrono::steady_clock::time_point ends = std::chrono::steady_clock::time_point::max();

  // The connection's: how to reach its thread while that waits.
  static constexpr size_t kNowhere = SIZE_MAX;
  const int waker;          // an eventfd, the thread's
  bool woken = false;       // the eventfd is readable
  size_t place = kNowhere;  // among those that wait

  // A frame of this stream. Bounded: never more is kept than was allowed.
  Fault accept(const Frame& frame);
  void wake();
  void calm();  // after wake()

 private:
  Fault accept_bytes(const Frame& frame);
  Fault accept_credit(const isogate_runner_channel& channel);
  Fault accept_end(const isogate_runner_channel& channel);
  Fault keep(Inbound& channel, std::string_view bytes);
};

}  // namespace isogate::sdk::link
