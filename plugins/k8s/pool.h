// Sandboxes made ahead: pods that run, each with a workspace of its own, tried and nobody's yet. A new
// agent's first call takes one: its Lease becomes the agent's by a write that names the version it was read
// at, so of all that want it one gets it. No pod is made, and none is waited for.
//
// A thread keeps the number up; it lives as long as the pool. What is ready belongs to a Lease of its own
// with the label kLabelAhead, which this gateway renews as long as it lives. One that is not renewed any more
// is removed by whichever gateway of the instance sees it. So ends
// what the gateways that used it have left running, once none of them was there for a while; its workspace
// stays, and with an emptyDir for one all of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "plugins/k8s/sandbox_pod.h"
#include "runner/fd.h"

namespace isogate::k8s {

class Pool {
 public:
  // `like`: parts of any sandbox of the backend, without a sandbox_id. `limits`: of the first ones. `size` 0:
  // none are made, and what others have left is removed. `services` is borrowed.
  Pool(Services& services, unsigned size, Parts like, const isogate_limits& limits);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();  // ends and removes what nobody took

  // One with these limits, now `taker`'s, whose Lease has to be there. None: it has to be made. Any thread.
  // Throws ISOGATE_CANCELLED.
  std::optional<ReadyPod> take(const isogate_limits& limits, const Parts& taker, const sdk::Call& call);
  // How many are ready, in a few words.
  [[nodiscard]] std::string text() const;

 private:
  struct Ready {
    isogate_limits limits{};
    std::chrono::steady_clock::time_point renewed;
    bool measured = false;
    std::unique_ptr<SandboxPod> pod;
  };
  void run();
  void fill();
  Ready make(const isogate_limits& limits);
  void remove(Ready ready) noexcept;
  void remove_leftovers();
  void stop_the_forsaken();
  bool is_free(const nlohmann::json& lease);
  bool is_forsaken(const nlohmann::json& lease, const std::set<std::string>& living);
  void drop_the_dead();
  [[nodiscard]] bool is_due(const Ready& ready) const;
  void renew();
  std::optional<Ready> pick(const isogate_limits& limits);

  Services& services_;
  const unsigned size_;
  const Parts like_;
  const Fd stop_;  // an eventfd: cancels what the thread is about
  const isogate_call stopping_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::atomic<bool> refused_{false};
  isogate_limits wanted_;
  unsigned misses_ = 1;  // takes in a row that found none of their limits
  std::deque<Ready> ready_;
  std::chrono::steady_clock::time_point cleaned_{};
  std::map<std::string, std::chrono::steady_clock::time_point> forsaken_;  // sandboxes, since when
  std::thread thread_;
};

}  // namespace isogate::k8s
