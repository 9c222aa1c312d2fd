// What a call's thread does between its request and its result: it brings the bytes to where they belong in
// both directions, as much as there is credit for, and tells the runner when the call is cancelled.
#pragma once

#include <array>
#include <exception>
#include <string>

#include "connection.h"
#include "outlet.h"

namespace isogate::sdk::link {

// For output that nobody takes any more, once the call is cancelled or contact is lost.
constexpr std::chrono::milliseconds kGrace{250};

enum class Kind { kReads, kChanges, kRuns };  // what it means when contact is lost

// All descriptors are borrowed; -1: none. Those that went along with the request do not stand here, but for
// `body_fd`.
struct Plan {
  Kind kind = Kind::kReads;
  int feed_fd = -1;                       // goes out as DATA
  std::array<int, 2> out_fds = {-1, -1};  // DATA of stdout and stderr goes there
  int control_fd = -1;
  uint64_t most_bytes = UINT64_MAX;  // on stdout
  bool ends_with_reader = false;     // nobody needs the rest: the call is cancelled
  // WRITE: END is sent when the body is whole. Of a pipe that went along only the writer's end is looked at.
  bool has_body = false;
  int body_fd = -1;
  int complete_fd = -1;
  Clock::time_point until = kForEver;  // then it is not waited for any more, whatever becomes of it
  // LIST
  const EntrySink* entries = nullptr;
  uint64_t most_entries = UINT64_MAX;
};

class Talk {
 public:
  Talk(Connection& connection, const Call& call, const Plan& plan);
  ~Talk() { connection_.leave(pending_); }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  // Sends the request that `fill(std::string&, uint32_t stream)` appends and waits for its result. Throws
  // what went wrong, here or there.
  template <typename Fill>
  const isogate_runner_result& run(std::span<const int> fds, Fill fill) {
    call_.check();
    const bool sent = connection_.send(pending_, {.cancel_fd = call_.cancel_fd(), .until = plan_.until}, fds,
                                       [&](std::string& out) { fill(out, connection_.begin(pending_)); });
    if (!sent) not_sent();
    return converse();
  }

  // After run(), whether or not it threw: the runner sent a result, which is then this one.
  [[nodiscard]] bool was_answered() const { return answered_; }
  [[nodiscard]] const isogate_runner_result& said() const { return pending_.result; }
  // After run(): CANCEL was sent; output was dropped, since nobody took it after the cancellation.
  [[nodiscard]] bool was_cancelled() const { return cancelled_; }
  [[nodiscard]] bool was_cut() const { return cut_; }
  // Bytes of stdout that came, and of the feed that went.
  [[nodiscard]] uint64_t received() const { return outlets_[0].passed(); }
  [[nodiscard]] uint64_t sent() const { return fed_; }

 private:
  enum Watched : size_t { kCancel, kFeed, kControl, kComplete, kBody, kOut, kErr, kWatched };

  [[noreturn]] void not_sent();
  [[noreturn]] void lost(const std::string& why);
  [[noreturn]] void refuse(const char* why);  // what the runner brought, and the runner with it
  const isogate_runner_result& converse();
  void wait();
  void look_at_watched();
  void look_at_clock();
  const isogate_runner_result& conclude();

  void take_news();
  bool collect();
  void take_entries();
  void push();
  void give_credit();
  void deliver_last(Clock::time_point until);
  bool wait_for_outlets(Clock::time_point until);
  void drop();

  void feed();
  void end_feed();
  void end_body(bool whole);
  void look_at_body();
  void relay_control();
  void post_channel(uint16_t type, uint32_t channel, uint32_t bytes);
  void cancel();
  void stop(isogate_status status, const char* why);

  Connection& connection_;
  const Call& call_;
  Plan plan_;
  Pending pending_;
  std::array<pollfd, kWatched> watched_{};

  bool answered_ = false, cancelled_ = false, cut_ = false, was_away_ = false;
  Clock::time_point patience_ends_ = kForEver, grace_ends_ = kForEver;
  bool body_ended_ = false;
  std::exception_ptr stopped_;  // thrown in place of the result
  std::array<Outlet, 2> outlets_;
  std::array<uint64_t, 2> credited_{};
  std::array<uint64_t, 2> window_ = {ISOGATE_RUNNER_WINDOW, ISOGATE_RUNNER_WINDOW};
  uint64_t credit_ = ISOGATE_RUNNER_WINDOW, fed_ = 0;
  std::string buffer_;   // of the feed
  std::string listing_;  // entries that came
  uint64_t entries_ = 0, listed_ = 0;
};

}  // namespace isogate::sdk::link
