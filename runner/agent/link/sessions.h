// All sessions of an `isogate-runner serve`: each new stream begins one, or resumes one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/agent/link/long_session.h"

namespace isogate::agent {

// What is wrong with a client's request; null: nothing. Pure.
const char* fault_of(const isogate_runner_resume& request);

class Sessions {  // the main thread's
 public:
  Sessions(Place& place, Poller& poller) : place_(place), poller_(poller) {}  // borrowed

  void receive(Peer peer);
  // Releases those that are over; returns what clients did that ended them.
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
