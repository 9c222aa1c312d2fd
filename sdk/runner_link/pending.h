// One call under way: what the frames of its stream brought, until the call's own thread takes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "wire.h"

namespace isogate::sdk::link {

struct Inbound {         // a channel of bytes from the runner
  bool open = false;     // the request asked for it, without a descriptor
  uint64_t allowed = 0;  // credit that the runner still has
  std::string arrived;   // never more than ISOGATE_RUNNER_WIDEST bytes
};

// Belongs to the thread of its call, on whose stack it may lie. While it is known to a Connection all but
// `waker` and what says otherwise is guarded by the connection's mutex.
struct Pending {
  Pending();
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  // What its frames may be; set before its request is sent.
  bool lists = false;         // ENTRIES come on `in[0]`
  bool feeds = false;         // DATA goes out, CREDIT comes
  std::array<Inbound, 2> in;  // stdout, stderr
  void open(size_t channel);  // with the first credit
  uint32_t stream = 0;        // given when the request is sent

  // What came.
  uint64_t credit = 0;  // for DATA
  bool answered = false;
  isogate_runner_result result{};
  std::string message;
  bool news = false;  // something came since it was last taken

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
