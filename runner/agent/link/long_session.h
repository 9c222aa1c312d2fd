// A session that outlives its streams. Its own thread moves the bytes of its programs and may wait for the
// client, which the main thread may not.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "runner/agent/link/listener.h"
#include "runner/agent/link/session.h"

namespace isogate::agent {

class LongSession {  // the main thread's
 public:
  // Begins with its first stream. `nudged` is nudged when it has ended.
  static Result<std::unique_ptr<LongSession>> begin(Place& place, Peer peer, Poller& nudged);
  ~LongSession();  // waits for its end
  LongSession(const LongSession&) = delete;
  LongSession& operator=(const LongSession&) = delete;

  // False: it cannot resume from there; then it is over.
  bool resume(Peer peer) { return connection_->attach(std::move(peer.stream), peer.request.received); }
  void stop() { session_->stop(); }
  [[nodiscard]] bool is_over() const { return over_; }
  [[nodiscard]] std::string why() { return session_->why(); }
  [[nodiscard]] bool has_id(const uint8_t (&id)[16]) const;
  [[nodiscard]] bool has_owner(const uint8_t (&owner)[16]) const;

 private:
  LongSession(Place& place, Poller& nudged) : place_(place), nudged_(nudged) {}
  Result<void> open(Peer peer);
  void run();

  Place& place_;
  Poller& nudged_;
  isogate_runner_resumed first_{};
  uint8_t owner_[16] = {};
  Poller poller_;
  std::unique_ptr<ResumableConnection> connection_;
  std::unique_ptr<Session> session_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace isogate::agent
