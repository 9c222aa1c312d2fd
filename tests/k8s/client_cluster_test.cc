// The client against the real cluster of tests/engines/kubernetes.sh.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "plugins/k8s/client/exec_channel.h"
#include "plugins/k8s/client/watch.h"
#include "tests/eventually.h"
#include "tests/k8s/fake_cluster.h"
#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class RealCluster : public testing::Test {
 protected:
  void SetUp() override {
    const char* file = std::getenv("ISOGATE_TEST_KUBERNETES");
    if (file == nullptr || *file == '\0')
      GTEST_SKIP() << "ISOGATE_TEST_KUBERNETES is not set: tests/engines/kubernetes.sh up prints its value";
    AccessConfig config;
    config.kubeconfig = file;
    config.name_space = "default";
    api_ = std::make_unique<Api>(load_access(config));
    name_ = "client-" + std::to_string(::getpid()) + "-" +
            std::to_string(Clock::now().time_since_epoch().count());
  }
  void TearDown() override {
    if (api_) failure_of([&] { api_->remove(pod(), {{"gracePeriodSeconds", 0}}, usual()); });
  }
  [[nodiscard]] Resource pod(const std::string& subresource = "") const {
    return {"v1", "default", "pods", name_, subresource};
  }
  [[nodiscard]] Json body() const {
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"metadata", {{"name", name_}, {"labels", {{"test", name_}}}}},
            {"spec",
             {{"terminationGracePeriodSeconds", 0},
              {"containers",
               {{{"name", "main"},
                 {"image", "isogate-test:small"},
                 {"imagePullPolicy", "Never"},
                 {"command", {"sleep", "600"}}}}}}}};
  }
  void start() {
    api_->create({"v1", "default", "pods"}, body(), usual());
    for (int i = 0; i < 600; ++i) {
      if (api_->get(pod(), usual())["status"]["phase"] == "Running") return;
      std::this_thread::sleep_for(milliseconds(50));
    }
    FAIL() << api_->get(pod(), usual()).dump();
  }
  [[nodiscard]] ExecRequest exec(const std::vector<std::string>& command) const {
    ExecRequest one;
    one.name_space = "default";
    one.pod = name_;
    one.container = "main";
    one.command = command;
    return one;
  }
  static std::string read_all(ExecChannel& channel, size_t most = SIZE_MAX) {
    std::string all, buffer(1 << 20, '\0');
    while (all.size() < most) {
      const ssize_t n = channel.read_some(buffer.data(), std::min(buffer.size(), most - all.size()));
      if (n > 0) {
        all.append(buffer.data(), static_cast<size_t>(n));
        continue;
      }
      pollfd watched{channel.fd(), POLLIN, 0};
      if (n == 0 || errno != EAGAIN || ::poll(&watched, 1, 60'000) <= 0) return all;
    }
    return all;
  }
  static void write_all(ExecChannel& channel, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = channel.write_some(bytes.data(), bytes.size());
      pollfd watched{channel.fd(), POLLOUT, 0};
      if (n > 0)
        bytes.remove_prefix(static_cast<size_t>(n));
      else if (::poll(&watched, 1, 60'000) <= 0)
        return;
    }
  }

  // How it ended, once it has.
  static ExecEnd end_of(const ExecChannel& channel) {
    for (int i = 0; i < 20'000 && !channel.ended(); ++i) std::this_thread::sleep_for(milliseconds(1));
    return channel.ended().value_or(ExecEnd{.why = "it has not ended"});
  }

  std::unique_ptr<Api> api_;
  std::string name_;
};

TEST_F(RealCluster, ObjectsComeAndGo) {
  const Json made = api_->create({"v1", "default", "pods"}, body(), usual());
  EXPECT_EQ(failure_of([&] {
              api_->create({"v1", "default", "pods"}, body(), usual());
            }).status,
            ISOGATE_ALREADY_EXISTS);
  Json changed;  // once it is scheduled, which changes it, too
  ASSERT_TRUE(test::eventually(30, [&] {
    changed = api_->get(pod(), usual());
    return changed["spec"].contains("nodeName");
  }));
  changed["metadata"]["annotations"]["a"] = "b";
  changed["metadata"].erase("resourceVersion");
  api_->replace(pod(), changed, usual());
  const Json now = api_->get(pod(), usual());
  EXPECT_EQ(now["metadata"]["annotations"]["a"], "b");
  Json stale = made;
  stale["metadata"]["labels"]["c"] = "d";
  EXPECT_EQ(failure_of([&] { api_->replace(pod(), stale, usual()); }).reason, "Conflict");
  EXPECT_EQ(
      api_->list({"v1", "default", "pods"}, {.labels = "test=" + name_, .page = 1}, usual())["items"].size(),
      1u);
  EXPECT_EQ(
      failure_of([&] {
        api_->remove(pod(), {{"preconditions", {{"uid", "00000000-0000-0000-0000-000000000000"}}}}, usual());
      }).reason,
      "Conflict");
  api_->remove(pod(), {{"gracePeriodSeconds", 0}, {"preconditions", {{"uid", made["metadata"]["uid"]}}}},
               usual());
  EXPECT_EQ(failure_of([&] {
              api_->get({"v1", "default", "pods", "not-there"}, usual());
            }).status,
            ISOGATE_NOT_FOUND);
}

TEST_F(RealCluster, ProgramsRunAndTellThatTheyEnded) {
  start();
  const auto failed = ExecChannel::open(*api_, exec({"sh", "-c", "echo out; echo err >&2; exit 7"}), usual());
  EXPECT_EQ(read_all(*failed), "out\n");
  EXPECT_TRUE(end_of(*failed).has_status);
  const auto missing = ExecChannel::open(*api_, exec({"/not/there"}), usual());
  EXPECT_TRUE(end_of(*missing).has_status);
  ExecRequest nobody = exec({"true"});
  nobody.pod = "not-there";
  EXPECT_EQ(failure_of([&] { ExecChannel::open(*api_, nobody, usual()); }).status, ISOGATE_NOT_FOUND);
}

TEST_F(RealCluster, BytesAreTheSameBothWays) {
  start();
  constexpr size_t kSize = size_t{32} << 20;
  ExecRequest one = exec({"cat"});
  one.ping_every = milliseconds(100);
  const auto channel = ExecChannel::open(*api_, one, usual());
  std::string bytes(kSize, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  const auto begin = Clock::now();
  std::thread writer([&] { write_all(*channel, bytes); });
  EXPECT_TRUE(read_all(*channel, kSize) == bytes);
  writer.join();
  std::printf("both ways: %.0f MiB/s\n",
              static_cast<double>(kSize >> 20) / std::chrono::duration<double>(Clock::now() - begin).count());
  // Idle for several pings: it is still open.
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_FALSE(channel->ended());
  write_all(*channel, "more");
  EXPECT_EQ(read_all(*channel, 4), "more");
}

TEST_F(RealCluster, MuchOutputComesWhole) {
  start();
  // A busy kubelet drops what an exec writes right before its end (kubectl loses it, too): so this one ends
  // later.
  const auto channel =
      ExecChannel::open(*api_, exec({"sh", "-c", "head -c 268435456 /dev/zero; read -r go"}), usual());
  const auto begin = Clock::now();
  EXPECT_EQ(read_all(*channel, size_t{256} << 20).size(), size_t{256} << 20);
  std::printf("down: %.0f MiB/s\n", 256 / std::chrono::duration<double>(Clock::now() - begin).count());
  write_all(*channel, "\n");
  EXPECT_TRUE(end_of(*channel).has_status);
}

TEST_F(RealCluster, ADeletedPodIsReportedByWatchAndExec) {
  std::mutex mutex;
  std::condition_variable changed;
  bool added = false, deleted = false;
  const auto wait = [&](const bool& what) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, seconds(20), [&] { return what; });
  };
  WatchEvents events;
  events.changed = [&](const Json&, bool gone) {
    const std::lock_guard lock(mutex);
    (gone ? deleted : added) = true;
    changed.notify_all();
  };
  const Watch watch(*api_, {"v1", "default", "pods"}, {.labels = "test=" + name_}, events);
  start();
  EXPECT_TRUE(wait(added));
  // A channel may be open before the kubelet has started the exec: only a byte shows that the program runs.
  const auto channel = ExecChannel::open(*api_, exec({"sh", "-c", "echo runs; exec sleep 600"}), usual());
  ASSERT_EQ(read_all(*channel, 5), "runs\n");
  api_->remove(pod(), {{"gracePeriodSeconds", 0}}, usual());
  EXPECT_TRUE(wait(deleted));
  EXPECT_NE(end_of(*channel).why, "it has not ended");
}

// It affects everything that uses the cluster: only with slow tests.
TEST_F(RealCluster, TheApiServersDeathIsReportedAndOutlived) {
  const char* slow = std::getenv("ISOGATE_SLOW_TESTS");
  if (slow == nullptr || *slow == '\0') GTEST_SKIP() << "kills the API server: ISOGATE_SLOW_TESTS is not set";
  const std::string kubeconfig = std::getenv("ISOGATE_TEST_KUBERNETES");
  const std::string directory = kubeconfig.substr(0, kubeconfig.rfind('/'));
  std::atomic<int> lost{0}, restored{0};
  WatchEvents events;
  events.lost = [&](const std::string&) { ++lost; };
  events.restored = [&] { ++restored; };
  const Watch watch(*api_, {"v1", "default", "pods"}, {.labels = "test=" + name_}, events);
  start();
  const auto channel = ExecChannel::open(*api_, exec({"sleep", "600"}), usual());
  const auto begin = Clock::now();
  EXPECT_EQ(test::run_program({"sh", "-c", "kill -9 $(cat " + directory + "/kube-apiserver.pid)"}).exit_code,
            0);
  EXPECT_FALSE(end_of(*channel).has_status);
  EXPECT_LT(Clock::now() - begin, seconds(2));
  const Failure failure = failure_of([&] { api_->get(pod(), Budget(seconds(2))); });
  EXPECT_EQ(failure.status, ISOGATE_UNAVAILABLE) << failure.message;
  EXPECT_EQ(test::run_program({ISOGATE_SOURCE_DIR "/tests/engines/kubernetes.sh", "up", directory},
                              {.timeout_sec = 120})
                .exit_code,
            0);
  for (int i = 0; i < 300 && restored == 0; ++i) std::this_thread::sleep_for(milliseconds(100));
  EXPECT_GE(lost, 1);
  EXPECT_GE(restored, 1);
  const auto again = ExecChannel::open(*api_, exec({"echo", "there"}), usual());
  EXPECT_EQ(read_all(*again), "there\n");
}

}  // namespace
}  // namespace isogate::k8s
