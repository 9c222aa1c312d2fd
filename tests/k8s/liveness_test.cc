// Runners that run and do not answer: with scripted links, and in pods of a real cluster.
#include "plugins/k8s/liveness.h"

#include <csignal>
#include <filesystem>

#include "tests/k8s/on_cluster.h"
#include "tests/support/processes.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using test::Caller;
using test::eventually;
using test::Gateway;
using testing::HasSubstr;
using Found = Liveness::Found;

class Link : public sdk::RunnerLink {
 public:
  void exec(const sdk::Call&, const isogate_exec_request&, isogate_exec_result&) override {}
  void read(const sdk::Call&, const isogate_file_request&, isogate_entry&) override {}
  uint64_t write(const sdk::Call&, const isogate_file_request&) override { return 0; }
  void list(const sdk::Call&, const isogate_file_request&, const sdk::EntrySink&) override {}
  void stat(const sdk::Call&, const isogate_file_request&, isogate_entry&) override {}
  void mkdir(const sdk::Call&, const isogate_file_request&) override {}
  void move(const sdk::Call&, const isogate_file_request&) override {}
  void remove(const sdk::Call&, const isogate_file_request&) override {}
  void evidence(const sdk::Call&, const isogate_evidence_request&, isogate_evidence&) override {}
  void disk_use(const sdk::Call&, isogate_disk_use&) override {}
  void watch(const sdk::Call&, const isogate_file_request&) override {}
  void connect_to_port(const sdk::Call&, const isogate_connect_request&) override {}
  void start_kept(const sdk::Call&, const isogate_exec_request&, const isogate_kept_exec&,
                  isogate_exec_result&) override {}
  void rejoin(const sdk::Call&, const isogate_exec_request&, const isogate_kept_exec&,
              isogate_exec_result&) override {}
  bool prove(milliseconds) override {
    ++execs;
    return works;
  }
  [[nodiscard]] bool spent() const override { return false; }
  bool ping(milliseconds patience) override {
    ++pings;
    std::unique_lock lock(mutex_);
    if (!answers) closed_.wait_for(lock, patience, [this] { return !why_.empty(); });
    return answers && why_.empty();
  }
  [[nodiscard]] const Peer& peer() const override { return peer_; }
  [[nodiscard]] bool alive() const override { return why().empty(); }
  [[nodiscard]] std::string why() const override {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  void close(const std::string& why) override {
    const std::lock_guard lock(mutex_);
    if (why_.empty()) why_ = why;
    closed_.notify_all();
  }

  std::atomic<bool> answers{false}, works{true}, busy{false}, shared{false}, unknown{false};
  std::atomic<int> execs{0}, pings{0}, tried{0}, removed{0};

 private:
  mutable std::mutex mutex_;
  std::condition_variable closed_;
  std::string why_;
  Peer peer_;
};

Liveness::Way way_of(const std::shared_ptr<Link>& link, Found found) {
  Liveness::Way way;
  way.try_another = [link, found](const sdk::Call&) {
    ++link->tried;
    return found;
  };
  way.is_busy = [link] { return link->busy.load(); };
  way.is_shared = [link](const sdk::Call&) {
    if (link->unknown) throw sdk::Error(ISOGATE_UNAVAILABLE, "the API server does not answer");
    return link->shared.load();
  };
  way.remove = [link](const sdk::Call&) { ++link->removed; };
  return way;
}

class K8sLivenessOfLinks : public testing::Test {
 protected:
  std::shared_ptr<Link> watched(Found found, bool answers = false) {
    auto link = std::make_shared<Link>();
    link->answers = answers;
    liveness_.watch(link, way_of(link, found));
    return link;
  }
  Liveness liveness_{milliseconds(50), milliseconds(300), [](const std::string&) {}};
};

TEST_F(K8sLivenessOfLinks, WhatIsSilentTwiceIsRemoved) {
  const auto link = watched(Found::kSilent);
  EXPECT_TRUE(eventually(10, [&] { return link->removed == 1; }));
  EXPECT_EQ(link->tried, 2);
  EXPECT_THAT(link->why(), HasSubstr("stuck"));
}

TEST_F(K8sLivenessOfLinks, ADeadLinkOfARunnerThatSpeaksIsClosedAndNoMore) {
  const auto link = watched(Found::kSpeaks);
  EXPECT_TRUE(eventually(10, [&] { return !link->alive(); }));
  EXPECT_THAT(link->why(), HasSubstr("answers over others"));
  EXPECT_EQ(link->removed, 0);
}

TEST_F(K8sLivenessOfLinks, WhatNobodyKnowsChangesNothing) {
  const auto link = watched(Found::kUnknown);
  EXPECT_TRUE(eventually(10, [&] { return link->tried >= 2; })) << "it is not checked again";
  EXPECT_TRUE(link->alive());
  EXPECT_EQ(link->removed, 0);
}

TEST_F(K8sLivenessOfLinks, WhatAnswersAndRunsNothingIsRemoved) {
  const auto link = watched(Found::kSpeaks, true);
  EXPECT_TRUE(eventually(10, [&] { return link->execs >= 2; })) << "it was only pinged";
  EXPECT_EQ(link->removed, 0);
  link->works = false;
  EXPECT_TRUE(eventually(10, [&] { return link->removed == 1; }));
  EXPECT_THAT(link->why(), HasSubstr("runs no programs"));
}

TEST_F(K8sLivenessOfLinks, WhatATenantKeepsBusyIsNotBroken) {
  const auto link = std::make_shared<Link>();
  link->answers = link->busy = true;
  link->works = false;
  Liveness liveness(milliseconds(50), milliseconds(300), [](const std::string&) {});
  liveness.watch(link, way_of(link, Found::kSpeaks));
  EXPECT_FALSE(eventually(1, [&] { return link->removed > 0; }));
  link->busy = false;
  EXPECT_TRUE(eventually(10, [&] { return link->removed == 1; }));
}

TEST_F(K8sLivenessOfLinks, WhatAnotherGatewayUsesOrMayUseIsNotBroken) {
  const auto link = std::make_shared<Link>();
  link->answers = link->shared = true;
  link->works = false;
  Liveness liveness(milliseconds(50), milliseconds(300), [](const std::string&) {});
  liveness.watch(link, way_of(link, Found::kSpeaks));
  EXPECT_FALSE(eventually(1, [&] { return link->removed > 0; }));
  link->unknown = true;
  EXPECT_FALSE(eventually(1, [&] { return link->removed > 0; }));
  link->shared = link->unknown = false;
  EXPECT_TRUE(eventually(10, [&] { return link->removed == 1; }));
}

TEST_F(K8sLivenessOfLinks, ManyThatAreStuckDelayNoOther) {
  std::vector<std::shared_ptr<Link>> stuck;
  for (int i = 0; i < 4; ++i) stuck.push_back(watched(Found::kUnknown));
  const auto fine = watched(Found::kUnknown, true);
  const double took = test::seconds_of([&] { eventually(20, [&] { return fine->pings >= 3; }); });
  EXPECT_LT(took, 5.0);
  EXPECT_EQ(fine->tried, 0);
}

TEST(K8sLivenessOff, NothingIsLookedAt) {
  Liveness off(milliseconds(0), milliseconds(10), [](const std::string&) {});
  const auto link = std::make_shared<Link>();
  off.watch(link, way_of(link, Found::kSilent));
  EXPECT_FALSE(eventually(0.3, [&] { return link->pings > 0; }));
}

TEST(K8sLivenessEnd, WaitsForNobody) {
  const auto link = std::make_shared<Link>();
  auto liveness =
      std::make_unique<Liveness>(milliseconds(10), milliseconds(60'000), [](const std::string&) {});
  liveness->watch(link, way_of(link, Found::kSilent));
  ASSERT_TRUE(eventually(10, [&] { return link->pings >= 1; }));
  EXPECT_LT(test::seconds_of([&] { liveness.reset(); }), 2.0);
}

// The cgroup of the runner of a pod, or the one above it, until it is thawed.
class Frozen {
 public:
  enum class Which { kContainer, kPod };
  Frozen(const std::string& pod_uid, Which which) {
    for (const pid_t pid : test::marked("isogate-runner serve"))
      take(test::read_whole("/proc/" + std::to_string(pid) + "/cgroup"), pod_uid);
    if (which == Which::kPod) directory_ = directory_.substr(0, directory_.rfind('/'));
    EXPECT_NE(directory_, "") << "its cgroup is not found";
    write(true);
  }
  ~Frozen() { thaw(); }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;
  void thaw() const { write(false); }

 private:
  void take(const std::string& cgroups, const std::string& pod_uid) {
    for (const auto& [mark, root] :
         {std::pair(":freezer:", "/sys/fs/cgroup/freezer"), std::pair("0::", "/sys/fs/cgroup")}) {
      const size_t at = cgroups.find(mark);
      if (at == std::string::npos) continue;
      const size_t begin = at + std::string(mark).size();
      const std::string path = cgroups.substr(begin, cgroups.find('\n', begin) - begin);
      const std::string directory = root + path;
      if (path.find(pod_uid) == std::string::npos || !std::filesystem::exists(directory)) continue;
      directory_ = directory;
      return;
    }
  }
  void write(bool frozen) const {
    const bool v1 = std::filesystem::exists(directory_ + "/freezer.state");
    FILE* file = std::fopen((directory_ + (v1 ? "/freezer.state" : "/cgroup.freeze")).c_str(), "w");
    if (file == nullptr) return;  // it has ended meanwhile
    std::fputs(v1 ? (frozen ? "FROZEN" : "THAWED") : (frozen ? "1" : "0"), file);
    std::fclose(file);
  }
  std::string directory_;
};

class K8sLiveness : public OnCluster {
 protected:
  static constexpr const char* kQuick = "liveness_interval_sec: 1, liveness_patience_sec: 2";
};

TEST_F(K8sLiveness, AFrozenContainerIsReplacedOnItsWorkspace) {
  Gateway gateway(options(kQuick));
  const Caller me(gateway, "a"), other(gateway, "b");
  me.run("echo mine > kept; echo gone > /tmp/mark");
  const Json first = pod();
  other.run("true");
  const auto stream = started(me, "sleep 100");
  const Frozen frozen(uid_of(first), Frozen::Which::kContainer);
  const double took = test::seconds_of([&] {
    const Json end = stream->rest().back();
    EXPECT_EQ(end.at("outcome"), "unknown") << end;
    EXPECT_TRUE(end.at("exit_code").is_null());
    EXPECT_THAT(end.dump(), HasSubstr("stuck"));
  });
  EXPECT_LT(took, 30.0);
  EXPECT_EQ(other.out("echo works"), "works\n");
  EXPECT_EQ(me.out("cat kept; ls /tmp"), "mine\n") << "a fresh pod, the same files";
  EXPECT_THAT(gateway.log(), HasSubstr("is stuck, and removed"));
}

TEST_F(K8sLiveness, AFrozenPodIsReportedAsStuckAndRecreatedOnceItCanBeEnded) {
  Gateway gateway(options(kQuick));
  const Caller me(gateway, "a");
  me.run("echo mine > kept");
  const Json first = pod();
  const auto stream = started(me, "sleep 100");
  const Frozen frozen(uid_of(first), Frozen::Which::kPod);
  EXPECT_THAT(stream->rest().back().dump(), HasSubstr("stuck"));
  EXPECT_TRUE(eventually(10, [&] {
    const auto pods = all("pods");
    return pods.empty() || pods[0].at("metadata").contains("deletionTimestamp");
  }));
  frozen.thaw();
  EXPECT_EQ(me.out("cat kept"), "mine\n");
  EXPECT_NE(uid_of(pod()), uid_of(first));
}

// The process that brings a stream has passed it on: stopping it has no effect.
TEST_F(K8sLiveness, WhatATenantCanStopOfARunnerCostsNothing) {
  Gateway gateway(options(kQuick));
  const Caller me(gateway, "a");
  me.run("echo here > /tmp/mark");
  const std::string uid = uid_of(pod());
  const Json done = me.run(
      "n=0; for p in /proc/[0-9]*; do i=${p#/proc/}; "
      "if [ $i != 1 ] && grep -q '^PPid:.0$' $p/status && "
      "[ \"$(cat $p/comm)\" = isogate-runner ]; then kill -STOP $i; n=$((n+1)); fi; done; sleep 8; echo $n");
  EXPECT_EQ(done.at("outcome"), "exited") << done;
  EXPECT_EQ(done.at("stdout"), "1\n");
  EXPECT_EQ(me.out("cat /tmp/mark"), "here\n");
  EXPECT_EQ(uid_of(pod()), uid);
}

TEST_F(K8sLiveness, WhereNothingCanBeKnownNothingIsReplaced) {
  Gateway gateway(options("liveness_interval_sec: 1, liveness_patience_sec: 1"));
  const Caller me(gateway, "a");
  me.run("echo here > /tmp/mark");
  const std::string uid = uid_of(pod());
  for (const char* part : {"kubelet", "kube-apiserver"}) {
    const auto pid =
        static_cast<pid_t>(std::stol(test::read_whole(test::cluster_directory() + "/" + part + ".pid")));
    const auto stream = started(me, "sleep 9; echo fine");
    ASSERT_EQ(::kill(pid, SIGSTOP), 0);
    std::this_thread::sleep_for(std::chrono::seconds(7));
    ASSERT_EQ(::kill(pid, SIGCONT), 0);
    const auto events = stream->rest();
    EXPECT_EQ(events.back().value("exit_code", Json()), 0) << part << ": " << events.back();
    EXPECT_EQ(test::data_of(events, "stdout"), "fine\n") << part;
  }
  EXPECT_EQ(me.out("cat /tmp/mark"), "here\n");
  EXPECT_EQ(uid_of(pod()), uid);
  EXPECT_THAT(gateway.log(), Not(HasSubstr("stuck")));
}

}  // namespace
}  // namespace isogate::k8s
