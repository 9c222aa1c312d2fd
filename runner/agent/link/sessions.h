// All sessions of an `isogate-runner serve`: each new stream begins one, or resumes one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/agent/link/long_session.h"

namespace isogate::agent {

// Why a client's request is invalid; null: it is valid. Pure.
const char* fault_of(const isogate_runner_resume& request);

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
