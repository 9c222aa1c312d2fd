// Whether other gateways still renew their Leases: by the changes that this process itself has seen, on
// its own monotonic clock. Clocks of two machines are never compared. A Lease that is seen for the first
// time counts as renewed just now. Any thread.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>

namespace isogate::k8s {

class Renewals {
 public:
  using Clock = std::chrono::steady_clock;
  // Records that `name` has this `version` now. True: it has not changed for longer than `lasts`.
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
