// A session that outlives its streams, with a thread of its own: that moves the bytes of its programs, and
// may wait for the client, which the main thread may not.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "runner/resident/door.h"
#include "runner/resident/session.h"

namespace isogate::resident {

class LongSession {  // the main thread's
 public:
  // Begins with the stream of who asked for it. `nudged`: when it is over.
  static Result<std::unique_ptr<LongSession>> begin(Place& place, Visitor visitor, Poller& nudged);
  ~LongSession();  // waits for its end
  LongSession(const LongSession&) = delete;
  LongSession& operator=(const LongSession&) = delete;

  // False: not from there; then it is over.
  bool resume(Visitor visitor) { return line_->attach(std::move(visitor.stream), visitor.said.received); }
  void stop() { session_->stop(); }
  [[nodiscard]] bool is_over() const { return over_; }
  [[nodiscard]] std::string why() { return session_->why(); }
  [[nodiscard]] bool has_id(const uint8_t (&id)[16]) const;
  [[nodiscard]] bool has_owner(const uint8_t (&owner)[16]) const;

 private:
  LongSession(Place& place, Poller& nudged) : place_(place), nudged_(nudged) {}
  Result<void> open(Visitor visitor);
  void run();

  Place& place_;
  Poller& nudged_;
  isogate_runner_resumed first_{};
  uint8_t owner_[16] = {};
  Poller poller_;
  std::unique_ptr<Line> line_;
  std::unique_ptr<Session> session_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace isogate::resident
