// One connection to a runner, without its own thread. One of the threads that wait in it is the reader: it
// polls the stream and gives each frame to the call it belongs to; the others sleep on their eventfd. A
// reader that leaves or is about to block appoints another.
//
// Threads write whole frames, in the order in which they asked. A thread that waits for its turn, or for
// room in the stream, continues to read, so that two full sockets never wait for each other.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "isogate/runner_link.hpp"
#include "pending.h"

namespace isogate::sdk::link {

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point kForEver = Clock::time_point::max();

struct Patience {
  std::chrono::milliseconds cancelled{10'000};  // for the result of a call that was cancelled
  std::chrono::milliseconds stalled{10'000};    // for the stream to take one more byte, or a small frame
  std::chrono::milliseconds killed{10'000};     // for the result of an exec that was cancelled
};

// A stream that takes fewer bytes of a frame, beyond the patience for a small one, counts as lost.
constexpr size_t kLeastPerSecond = 16u << 10;

// For poll(2).
int milliseconds_to(Clock::time_point until);

enum class Awaits { kUpdate, kTurn, kRoom };

// What ends the attempt to send, while nothing of it is sent. Once a part is, the rest of it, and whatever
// else the call sends, has the patience of a cancelled call from then on: after that the connection ends. The
// time in which the stream is away does not count.
struct Bound {
  int cancel_fd = -1;
  Clock::time_point until = kForEver;
};

class Connection {
 public:
  Connection(std::unique_ptr<RunnerStream> stream, Patience patience);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends its hello and fills `hello`; throws ISOGATE_UNAVAILABLE, or ISOGATE_CANCELLED.
  void greet(const Bound& bound, isogate_runner_hello& hello);
  // Whether an answer to a ping came in time.
  bool ping(Clock::time_point until);

  // Waits until the awaited frames arrive, one of `also` (at most kMostWatched) is ready, the connection
  // has ended or it is `until`. May return early: the caller checks.
  static constexpr size_t kMostWatched = 8;
  void wait(Pending& call, Awaits awaits, std::span<pollfd> also, Clock::time_point until);
  // Before its thread blocks elsewhere.
  void step_down(Pending& call);
  // The last thing a call does here; nothing comes for it afterwards.
  void leave(Pending& call);
  // Before leave(), by a call whose result may still come.
  void abandon(const Pending& call);

  // Sends what `fill(std::string&)` appends, with descriptors at its first byte. False: the connection has
  // ended, or `bound` was reached, and the runner has received no whole frame of it.
  template <typename Fill>
  bool send(Pending& call, const Bound& bound, std::span<const int> fds, Fill fill) {
    const Turn turn(*this, call, bound);
    if (!turn.mine) return false;
    outbox_.clear();
    fill(outbox_);
    return flush(call, bound, fds, true);
  }
  // A small frame, without waiting for a turn: while it is another call's, that call sends it too. Credit
  // bounds how many there are. It cannot be given up.
  template <typename Fill>
  void post(Pending& call, const Bound& bound, Fill fill) {
    {
      const std::lock_guard lock(mutex_);
      if (dead_) return;
      if (writer_ != nullptr) return fill(posted_);
      writer_ = &call;
    }
    outbox_.clear();
    fill(outbox_);
    flush(call, bound, {}, false);
    pass_turn(call, bound);
  }
  // Within `fill` of send(): the number of the call's stream from now on.
  uint32_t begin(Pending& call);

  std::mutex& mutex() { return mutex_; }
  [[nodiscard]] const Patience& patience() const { return patience_; }
  [[nodiscard]] bool carries_descriptors() const { return stream_->carries_descriptors(); }
  [[nodiscard]] bool is_away() const { return stream_->is_away(); }
  [[nodiscard]] bool alive() const { return !dead_.load(std::memory_order_acquire); }
  // As alive(); if no thread reads, it checks whether the other side has hung up.
  [[nodiscard]] bool is_there();
  [[nodiscard]] std::string why() const;
  void fail(const std::string& why);
  [[noreturn]] void refuse(const char* why);  // fails: the runner's answer is invalid

 private:
  struct Turn {
    Turn(Connection& connection, Pending& call, const Bound& bound)
        : mine(connection.take_turn(call, bound)), connection_(connection), call_(call), bound_(bound) {}
    ~Turn() {
      if (mine) connection_.pass_turn(call_, bound_);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    const bool mine;

   private:
    Connection& connection_;
    Pending& call_;
    const Bound& bound_;
  };

  bool prepare(Pending& call, Awaits awaits, bool& reads);
  void unlist(Pending& call);
  void appoint();
  void reach(Pending& call);  // wakes it if it waits

  void receive();
  std::string dispatch();
  Fault hand_out(const Frame& frame);
  Fault hand_out_hello(const Frame& frame);
  Fault hand_out_pong(const Frame& frame);
  void notify(Pending& call);

  bool take_turn(Pending& call, const Bound& bound);
  bool has_turn(Pending& call, bool give_up);
  void pass_turn(Pending& call, const Bound& bound);
  void hand_on_turn();
  bool flush(Pending& call, Bound bound, std::span<const int> fds, bool may_give_up);
  bool wait_for_room(Pending& call, const Bound& bound);
  bool wait_for_rest(Pending& call, Bound& bound, Clock::time_point& whole_by);

  const std::unique_ptr<RunnerStream> stream_;
  const Patience patience_;

  mutable std::mutex mutex_;  // of all below, except where noted
  std::unordered_map<uint32_t, Pending*> calls_;
  std::unordered_set<uint32_t> abandoned_;
  std::vector<Pending*> waiting_;  // all that wait, but the reader
  Pending* reader_ = nullptr;      // none only if no thread waits
  Pending* writer_ = nullptr;
  std::deque<Pending*> writers_;  // in the order of asking
  std::string posted_;            // what the writer sends before it passes its turn
  uint32_t last_stream_ = 0;
  std::atomic<bool> dead_{false};
  std::string why_;

  Pending* greeter_ = nullptr;
  isogate_runner_hello* hello_ = nullptr;
  bool greeted_ = false;
  std::unordered_map<uint64_t, Pending*> pings_;
  uint64_t last_ping_ = 0, pongs_ = 0;

  std::string outbox_;                                              // the writer's
  Decoder decoder_{Sender::kRunner, 2 * ISOGATE_RUNNER_MAX_FRAME};  // the reader's
};

}  // namespace isogate::sdk::link
