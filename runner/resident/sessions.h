// All sessions of an `isogate-runner serve`: what a visitor's first words begin, go on with, or end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/resident/long_session.h"

namespace isogate::resident {

// What is wrong with a client's first words; null: nothing. Pure.
const char* fault_of(const isogate_runner_resume& said);

class Sessions {  // the main thread's
 public:
  Sessions(Place& place, Poller& poller) : place_(place), poller_(poller) {}  // borrowed

  void receive(Visitor visitor);
  // Lets go of those that are over; what their clients did that ended them.
  std::vector<std::string> reap();
  void stop();  // ends all
  [[nodiscard]] bool empty() const { return sessions_.empty(); }

 private:
  void begin(Visitor visitor);

  Place& place_;
  Poller& poller_;
  bool stopped_ = false;
  std::vector<std::unique_ptr<LongSession>> sessions_;
};

}  // namespace isogate::resident
