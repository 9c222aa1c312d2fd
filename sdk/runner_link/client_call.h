// One call of the client, from its request to its result: its thread moves the bytes of both directions, as
// far as there is credit, and sends CANCEL when the call is cancelled.
#pragma once

#include <array>
#include <exception>
#include <string>

#include "connection.h"
#include "outlet.h"

namespace isogate::sdk::link {

// For output that its reader does not read, once the call is cancelled or contact is lost.
constexpr std::chrono::milliseconds kGrace{250};

enum class Kind { kReads, kChanges, kRuns };  // what it means when contact is lost

// All descriptors are borrowed; -1: none. Those sent with the request are not here, except `body_fd`.
struct Plan {
  Kind kind = Kind::kReads;
  int feed_fd = -1;                       // goes out as DATA
  std::array<int, 2> out_fds = {-1, -1};  // DATA of stdout and stderr goes there
  int control_fd = -1;
  bool passes_out = false;           // a descriptor for stdout went with the request
  uint64_t most_bytes = UINT64_MAX;  // on stdout
  bool ends_with_reader = false;     // without a reader the call is cancelled
  // WRITE: END is sent when the body is complete. Of a pipe sent with the request, only the end of its
  // writer is watched.
  bool has_body = false;
  int body_fd = -1;
  int complete_fd = -1;
  Clock::time_point until = kForEver;  // then it is abandoned
  // CONNECT
  int ready_fd = -1;     // an eventfd, for READY
  int ends_fd = -1;      // a socket, where out_fds[0] is one: END of stdout is its shutdown
  bool is_kept = false;  // an exec that outlives this call
  int detach_fd = -1;    // readable: this call leaves it running
  bool rejoins = false;
  int state_fd = -1;      // a pipe, for REJOINED
  int input_end_fd = -1;  // readable: the end of the feed is that of the program's input
  // LIST
  const EntrySink* entries = nullptr;
  uint64_t most_entries = UINT64_MAX;
};

class ClientCall {
 public:
  ClientCall(Connection& connection, const Call& call, const Plan& plan);
  ~ClientCall() { connection_.leave(pending_); }
  ClientCall(const ClientCall&) = delete;
  ClientCall& operator=(const ClientCall&) = delete;

  // Sends the request that `fill(std::string&, uint32_t stream)` appends and waits for its result. Throws
  // a failure of either side.
  template <typename Fill>
  const isogate_runner_result& run(std::span<const int> fds, Fill fill) {
    // REJOIN goes out in any case, so that CANCEL can follow it.
    if (!plan_.rejoins) call_.check();
    const int cancel_fd = plan_.rejoins ? -1 : call_.cancel_fd();
    const bool sent = connection_.send(pending_, {.cancel_fd = cancel_fd, .until = plan_.until}, fds,
                                       [&](std::string& out) { fill(out, connection_.begin(pending_)); });
    if (!sent) not_sent();
    return await_result();
  }

  // After run(), whether or not it threw: whether its request was made, whether the runner sent a result, and
  // that result.
  [[nodiscard]] bool was_begun() const { return pending_.stream != 0; }
  [[nodiscard]] bool was_answered() const { return answered_; }
  [[nodiscard]] const isogate_runner_result& result() const { return pending_.result; }
  // After a run() that did not throw: the bytes that came with the result.
  [[nodiscard]] std::string_view attached() const { return pending_.message; }
  // After run(): CANCEL was sent; output that was not read after the cancellation was dropped.
  [[nodiscard]] bool was_cancelled() const { return cancelled_; }
  [[nodiscard]] bool was_cut() const { return cut_; }
  // This call left it running.
  [[nodiscard]] bool was_detached() const { return detached_; }
  // READY came.
  [[nodiscard]] bool was_ready() const { return ready_; }
  // Bytes of stdout received, and bytes of the feed sent.
  [[nodiscard]] uint64_t received() const { return outlets_[0].passed(); }
  [[nodiscard]] uint64_t sent() const { return fed_; }

 private:
  enum Watched : size_t { kCancel, kFeed, kControl, kComplete, kBody, kOut, kErr, kDetach, kWatched };

  [[noreturn]] void not_sent();
  [[noreturn]] void lost(const std::string& why);
  const isogate_runner_result& await_result();
  void wait();
  void handle_watched();
  void check_deadlines();
  const isogate_runner_result& conclude();

  void take_received();
  bool collect();
  void take_entries();
  void pass_marks_on();
  void pass_state_on();
  [[noreturn]] void detach();
  void push();
  void give_credit();
  void deliver_last(Clock::time_point until);
  bool wait_for_outlets(Clock::time_point until);
  void drop();

  void feed();
  void end_feed();
  void end_body(bool whole);
  void check_body();
  void forward_control();
  void post_channel(uint16_t type, uint32_t channel, uint32_t bytes);
  [[nodiscard]] Bound bound() const { return {.cancel_fd = call_.cancel_fd(), .until = plan_.until}; }
  void cancel();
  void stop(isogate_status status, const char* why);

  Connection& connection_;
  const Call& call_;
  Plan plan_;
  Pending pending_;
  std::array<pollfd, kWatched> watched_{};

  bool ready_ = false, out_ended_ = false, rejoined_ = false;
  bool detached_ = false;
  bool answered_ = false, cancelled_ = false, cut_ = false, was_away_ = false;
  Clock::time_point grace_ends_ = kForEver;
  bool body_ended_ = false;
  std::exception_ptr stopped_;  // thrown in place of the result
  std::array<Outlet, 2> outlets_;
  std::array<uint64_t, 2> consumed_{};  // bytes that the windows know to be passed on
  bool has_credit_ = true;
  uint64_t fed_ = 0;
  std::string buffer_;   // of the feed
  std::string listing_;  // entries that came
  uint64_t entries_ = 0, listed_ = 0;
};

}  // namespace isogate::sdk::link
