// The ends of this backend's pods, reported by one watch: a separate thread that begins with the first pod.
// Calls that wait for a pod wait here. When a pod has ended, the link to its runner is closed at once, with
// the reason. While the watch is silent, pods are polled from time to time. Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "isogate/runner_link.hpp"
#include "lib/condition.h"
#include "plugins/k8s/client/api.h"
#include "plugins/k8s/client/watch.h"

namespace isogate::k8s {

struct PodState {
  bool exists = false, running = false;
  bool ended = false;    // or about to end: nothing in it is reliable
  bool stopped = false;  // none of its containers runs, and none will
  bool ready = false;    // as its kubelet reports; the cluster withdraws that when the kubelet is silent
  std::string uid, node, node_ip;
  std::string how;              // how it ended, in a few words
  std::string problem;          // why it does not run yet, if that does not resolve by itself
  std::string waits;            // what its container waits for, if that may resolve by itself
  bool waits_for_node = false;  // the problem is the scheduler's: a volume or a new node may be on its way
};
// Of a pod as the API server reports it; a pod without a uid does not exist.
PodState state_of(const nlohmann::json& pod);

class Pods {
 public:
  // `selector`: of labels. `log`: called when the watch is lost and when it is back. Both are kept; `api` is
  // borrowed.
  Pods(Api& api, std::string name_space, std::string selector, std::function<void(const std::string&)> log);
  ~Pods();
  Pods(const Pods&) = delete;
  Pods& operator=(const Pods&) = delete;

  // As the API server reports now. Throws NetError, also if it is no pod.
  PodState look(const std::string& name, const Budget& budget);
  // Waits until `done` accepts its state, or the time has passed: then returns the last state. Throws
  // ISOGATE_CANCELLED, and what look() throws.
  PodState await(const std::string& name, const sdk::Call& call, std::chrono::milliseconds most,
                 const std::function<bool(const PodState&)>& done);
  // `link` is closed when the pod has ended, unless forget() was first.
  void follow(const std::string& name, const std::string& uid, const std::shared_ptr<sdk::RunnerLink>& link);
  void forget(const std::string& name);

 private:
  struct Followed {
    std::string uid;
    std::weak_ptr<sdk::RunnerLink> link;
  };
  struct Awaited {
    int calls = 0;       // that wait for it
    uint64_t event = 0;  // how many have been reported; 0: none
    PodState state;      // of the last one
  };
  void on_change(const nlohmann::json& pod, bool deleted);
  bool may_be_there(const std::string& name, const std::string& uid);
  void begin();

  Api& api_;
  const std::string name_space_, selector_;
  const std::function<void(const std::string&)> log_;
  std::mutex mutex_;
  Condition changed_;
  std::map<std::string, Awaited> awaited_;
  std::map<std::string, Followed> followed_;
  std::unique_ptr<Watch> watch_;  // the last member: it ends first
};

}  // namespace isogate::k8s
