// A runner that reports that something could not be killed.
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "tests/eventually.h"
#include "tests/k8s/on_fake.h"

namespace isogate::k8s {
namespace {

using test::eventually;

// The program kills its reaper, and its runner, without descriptors, cannot look whether anything is left.
constexpr const char* kLeaves =
    "trap '' HUP TERM; setsid sh -c 'sleep 20 & sleep 20' & "
    "awk '/^PPid/ { print $2 }' /proc/$PPID/status > its; mv its runner; "
    "until [ -e leave ]; do sleep 0.05; done; rm runner leave; kill -9 $PPID; sleep 20; true";
constexpr const char* kNoChecks = R"("liveness_interval_sec": 0)";

class K8sLeftBehind : public OnFake {
 protected:
  [[nodiscard]] std::string pod() const {
    return api_.all("pods").empty() ? "" : api_.all("pods")[0].at("metadata").at("name").get<std::string>();
  }
  static bool limit_files(pid_t pid, rlim_t most) {
    rlimit limit{};
    if (::prlimit(pid, RLIMIT_NOFILE, nullptr, &limit) != 0) return false;
    limit.rlim_cur = std::min(most, limit.rlim_max);
    return ::prlimit(pid, RLIMIT_NOFILE, &limit, nullptr) == 0;
  }
  void leave_behind(FakeGateway& gateway, FakeGateway::Box& box) const {
    const std::string there = pod(), files = api_.workspace_of(there);
    isogate_status status = ISOGATE_OK;
    std::string why;
    std::thread program([&] { status = status_of([&] { gateway.run(box, kLeaves); }, &why); });
    pid_t runner = 0;
    EXPECT_TRUE(eventually(30, [&] { return bool(std::ifstream(files + "/runner") >> runner); }));
    EXPECT_TRUE(limit_files(runner, 0));
    std::ofstream(files + "/leave") << "";
    program.join();
    EXPECT_EQ(status, ISOGATE_LOST);
    EXPECT_EQ(pod(), there) << "it is replaced by a later call: " << why;
    (void)limit_files(runner, RLIM_INFINITY);
  }
  // Runs until there is a file `go`.
  struct LongExec {
    std::string out, failure;
    std::thread thread;
  };
  static void start(LongExec& exec, FakeGateway& gateway, FakeGateway::Box& box) {
    exec.thread = std::thread([&] {
      try {
        exec.out = gateway.run(box, "touch up; until [ -e go ]; do sleep 0.05; done; echo survived");
      } catch (const std::exception& error) {
        exec.failure = error.what();
      }
    });
    EXPECT_TRUE(eventually(30, [&] { return status_of([&] { gateway.read(box, "up"); }) == ISOGATE_OK; }));
  }
};

TEST_F(K8sLeftBehind, TheNextProgramRunsInAnotherPod) {
  FakeGateway gateway(api_, "/state", kNoChecks);
  auto box = gateway.used("echo mine > kept");
  const std::string first = pod();
  leave_behind(gateway, box);
  EXPECT_EQ(gateway.run(box, "cat kept"), "mine\n") << gateway.log();
  EXPECT_NE(pod(), first);
  EXPECT_FALSE(api_.runs(first));
  const std::string second = pod();
  EXPECT_EQ(gateway.run(box, "cat kept"), "mine\n");
  EXPECT_EQ(pod(), second) << "once is enough";
}

class K8sLeftBeside : public K8sLeftBehind, public testing::WithParamInterface<const char*> {};

TEST_P(K8sLeftBeside, AWatchDoesNotEndWhatRuns) {
  FakeGateway gateway(api_, "/state", std::string(kNoChecks) + R"(, "transport": ")" + GetParam() + '"');
  auto box = gateway.ready();
  const std::string first = pod();
  LongExec running;
  start(running, gateway, box);
  leave_behind(gateway, box);
  EXPECT_NO_THROW(gateway.watch(box)) << gateway.log();
  EXPECT_EQ(gateway.read(box, "up"), "");
  gateway.write(box, "go", "");
  running.thread.join();
  EXPECT_EQ(running.out, "survived\n") << running.failure;
  EXPECT_EQ(pod(), first);
  EXPECT_NO_THROW(gateway.watch(box)) << gateway.log();
  EXPECT_NE(pod(), first) << "nothing ran in it any more";
}

INSTANTIATE_TEST_SUITE_P(Over, K8sLeftBeside, testing::Values("stream", "exec"));

TEST_F(K8sLeftBehind, ALongProgramDoesNotKeepItsPodInUse) {
  FakeGateway gateway(api_, "/state", kNoChecks);
  auto box = gateway.ready();
  const std::string first = pod();
  LongExec running;
  start(running, gateway, box);
  leave_behind(gateway, box);
  EXPECT_EQ(gateway.run(box, "echo next"), "next\n") << gateway.log();
  gateway.write(box, "go", "");  // it has ended already
  running.thread.join();
  EXPECT_NE(running.failure, "");
  EXPECT_FALSE(api_.runs(first));
  const std::string second = pod();
  EXPECT_EQ(gateway.run(box, "echo next"), "next\n");
  EXPECT_EQ(pod(), second) << "the end of a call in the first one is no reason to distrust the second";
}

TEST_F(K8sLeftBehind, AlsoWithAConnectionForEachCall) {
  FakeGateway gateway(api_, "/state", std::string(kNoChecks) + R"(, "transport": "exec")");
  auto box = gateway.used();
  const std::string first = pod();
  leave_behind(gateway, box);
  EXPECT_EQ(gateway.run(box, "echo next"), "next\n") << gateway.log();
  EXPECT_NE(pod(), first);
}

}  // namespace
}  // namespace isogate::k8s
