// Whether the runners of open links still work. A few threads take the links in turn, so that a stuck pod
// delays no other: when the last idle one has begun with a link, another starts. A runner that responds has
// to start a program. A runner that responds but twice starts no program, while no tenant's program in its
// pod can be the reason, is broken. A silent runner is tried over another connection: it is stuck only if it
// accepts two connections and sends nothing. An unknown state has no consequence. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "isogate/runner_link.hpp"
#include "lib/fd.h"

namespace isogate::k8s {

class Liveness {
 public:
  enum class Found {
    kSpeaks,   // over another connection
    kSilent,   // that connection was established end to end, and no runner sent HELLO in time
    kUnknown,  // anything else
  };
  // Of one link. They own what they need and may block for a small multiple of the patience.
  struct Way {
    std::function<Found(const sdk::Call&)> try_another;
    std::function<bool()> is_busy;                    // programs of a tenant run in it
    std::function<bool(const sdk::Call&)> is_shared;  // others may run some in it; throws sdk::Error
    std::function<void(const sdk::Call&)> remove;     // the stuck or broken pod; throws sdk::Error
  };

  // `interval`: between two checks of one link; zero: no checks. `patience`: for each reply.
  Liveness(std::chrono::milliseconds interval, std::chrono::milliseconds patience,
           std::function<void(const std::string&)> log);
  ~Liveness();  // closes links under examination
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  [[nodiscard]] std::chrono::milliseconds patience() const { return patience_; }
  // Until `link` has ended.
  void watch(const std::shared_ptr<sdk::RunnerLink>& link, Way way);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMostExaminers = 8;
  struct Watched {
    std::weak_ptr<sdk::RunnerLink> link;
    Way way;
  };
  void start();
  void examine_due();
  void examine(sdk::RunnerLink& link, const Way& way);
  void replace(sdk::RunnerLink& link, const Way& way, const char* why);
  [[nodiscard]] bool is_ours_alone(const Way& way) const;
  bool twice_silent(sdk::RunnerLink& link, const Way& way);
  bool pause_until(Clock::time_point until);

  const std::chrono::milliseconds interval_, patience_;
  const std::function<void(const std::string&)> log_;
  const Fd cancel_;  // readable at the end
  const isogate_call ending_{sizeof(isogate_call), cancel_.get(), INT64_MAX, {}};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::multimap<Clock::time_point, Watched> due_;
  std::vector<std::weak_ptr<sdk::RunnerLink>> examined_;
  size_t idle_ = 0;  // of the threads
  std::vector<std::thread> threads_;
};

}  // namespace isogate::k8s
