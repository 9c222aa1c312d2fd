// Whether what others renew is still renewed: by the changes that this process has seen itself, on its own
// monotonic clock. No two machines' clocks are compared. What is seen for the first time counts as renewed
// just now. Any thread.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>

namespace isogate::k8s {

class Renewals {
 public:
  using Clock = std::chrono::steady_clock;
  // Notes that `name` has this `version` now. True: it had it all the time for longer than `lasts`.
  bool lapsed(const std::string& name, const std::string& version, std::chrono::seconds lasts,
              Clock::time_point now = Clock::now());

 private:
  struct Seen {
    std::string version;
    Clock::time_point since, looked;
  };
  void make_room(Clock::time_point now);

  std::mutex mutex_;
  std::map<std::string, Seen> seen_;
};

}  // namespace isogate::k8s
