// An API server in the test's own process: it keeps objects with uids and versions, removes them with their
// owners, and runs pods whose runner is a real isogate-runner of this build. It fails where a test says so.
// Any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/fd.h"
#include "tests/k8s/fake_cluster.h"
#include "tests/support/program.h"

namespace isogate::k8s {

class FakeApi {
 public:
  enum class Fault {
    kError,       // 500, and not executed
    kReset,       // the connection ends, and not executed
    kLostAnswer,  // the connection ends after it was executed
    kHang,        // no response, and not executed; hanging() becomes readable
  };

  FakeApi();
  FakeApi(const FakeApi&) = delete;
  FakeApi& operator=(const FakeApi&) = delete;
  ~FakeApi();

  [[nodiscard]] std::string kubeconfig() const;
  // Objects of one kind, such as pods or leases.
  [[nodiscard]] std::vector<Json> all(const std::string& plural) const;
  [[nodiscard]] Json one(const std::string& plural) const;  // the only one; null: not exactly one
  void edit(const std::string& plural, const std::string& name, const std::function<void(Json&)>& change);
  void put(const std::string& plural, Json object);
  void drop(const std::string& plural, const std::string& name);  // with what it owns
  // Its container ends and another one of `image` starts under the same UID, as after a patch of its image.
  void restart_container(const std::string& pod, const std::string& image);
  [[nodiscard]] bool runs(const std::string& pod) const;  // its runner
  // The directory of this machine that its programs have as their workspace.
  [[nodiscard]] std::string workspace_of(const std::string& pod) const;
  void freeze(const std::string& pod, bool frozen) const;  // its runner, if there is one
  // All open streams of execs break.
  void cut_streams();

  // Requests are counted; watches, and what gateways do in the background with their own Leases, are not.
  void count_from_now();
  [[nodiscard]] size_t counted() const;
  [[nodiscard]] std::string request(size_t number) const;  // "GET leases", of the counted requests; from 1
  void fail(size_t number, Fault fault);                   // only that one
  // Each request for which this returns true fails; empty: none.
  void fail_if(std::function<bool(const Heard&)> which, Fault fault);
  // Each request for which this returns true gets that response; empty: none.
  void answer_if(std::function<bool(const Heard&)> which, std::string answer);
  void signal_hanging_in(std::chrono::milliseconds time);
  void await_signal();
  [[nodiscard]] int hanging() const { return hanging_.get(); }
  // A removed pod keeps running, and stays listed, as on a lost node.
  void keep_pods(bool kept);
  // New pods are not scheduled, as without room on any node; with false they are.
  void put_off_pods(bool put_off);
  // Objects without an owner stay.
  void collect_garbage(bool collects);

 private:
  struct Runner;
  struct Key {
    std::string plural, name;
    auto operator<=>(const Key&) const = default;
  };
  struct Target {
    std::string plural, name, subresource;
    std::vector<std::pair<std::string, std::string>> query;
  };
  static Target target_of(const std::string& text);
  bool answer(Peer& peer, const Heard& heard);
  std::string serve(const Heard& heard, const Target& target);
  std::string create(const Target& target, const std::string& body);
  std::string list(const Target& target);
  std::string replace(const Target& target, const std::string& body);
  std::string remove(const Target& target, const std::string& body);
  void forget(const Key& key);
  void start(Json& pod, const std::string& image);
  void exec(Peer& peer, const Heard& heard, const Target& target);
  static std::string not_found(const Target& target);
  void hold(Peer& peer);

  mutable std::mutex mutex_;
  std::map<Key, Json> objects_;
  std::map<std::string, std::shared_ptr<Runner>> runners_;  // by pod
  std::vector<Peer*> streams_;
  std::vector<std::string> requests_;
  std::map<size_t, Fault> faults_;
  std::function<bool(const Heard&)> fails_if_;
  Fault fails_as_ = Fault::kError;
  std::function<bool(const Heard&)> answers_if_;
  std::string answers_;
  std::thread later_;
  uint64_t version_ = 0;
  bool pods_stay_ = false, pods_are_put_off_ = false, collects_ = true;
  Fd hanging_;
  test::TemporaryDirectory files_;
  std::unique_ptr<FakeCluster> cluster_;  // the last member: it ends first
};

}  // namespace isogate::k8s
