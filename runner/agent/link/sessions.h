// All sessions of an `isogate-runner serve`: each new stream begins one, or resumes one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runner/agent/link/listener.h"
#include "runner/agent/link/session.h"

namespace isogate::agent {

// Why a client's request is invalid; null: it is valid. Pure.
const char* fault_of(const isogate_runner_resume& request);

// One that outlives its streams. Its own thread moves the bytes of its programs and may wait for the client,
// which the main thread may not.
class LongSession {  // the main thread's
 public:
  // `nudged` is nudged when it has ended.
  LongSession(Place& place, Poller& nudged) : place_(place), nudged_(nudged) {}
  // Once, first of all: begins it with its first stream.
  Result<void> open(Peer peer);
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

class Sessions {  // the main thread's
 public:
  Sessions(Place& place, Poller& poller) : place_(place), poller_(poller) {}  // borrowed

  void receive(Peer peer);
  // Releases ended sessions; returns how clients broke the protocol and ended them.
  std::vector<std::string> reap();
  void stop();  // ends all
  [[nodiscard]] bool empty() const { return sessions_.empty(); }

 private:
  void begin(Peer peer);

  Place& place_;
  Poller& poller_;
  bool stopped_ = false;
  std::vector<std::unique_ptr<LongSession>> sessions_;
};

}  // namespace isogate::agent
