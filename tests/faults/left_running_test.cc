#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/faults/faults.h"
#include "tests_dirs.h"

// What runs on without its host: a stop of the gateway ends it, or names it, and what a crash left half-done
// is ended without a call.
namespace isogate::test {
namespace {

using std::chrono::milliseconds;

class LeftRunning : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_UNLESS_STARTABLE();
    ::chmod(place_.path().c_str(), 0777);
    fail("");
  }
  void begin(const std::string& more = "", const std::string& state_dir = {}) {
    gateway_ = start("min_isolation: namespace\n" + more +
                         "backends:\n  - name: staged\n    plugin: " ISOGATE_BUILD_DIR
                         "/test_plugins/staged.so\n    config: {runs: true, stage: " +
                         place_.path() + "}\n",
                     state_dir);
    ASSERT_TRUE(decided(*gateway_));
  }
  // The sandboxes of three agents run on without the gateway that opened them, and the next one starts.
  void begin_with_three_of_before(const std::string& more) {
    begin("on_shutdown: keep\n");
    for (const char* agent : {"a", "b", "c"})
      ASSERT_EQ(Caller(*gateway_, agent).post("/exec", {{"argv", {"true"}}}).status, 200);
    ASSERT_EQ(stop(), 0);
    ASSERT_EQ(left(".place"), 3u);
    before_ = std::move(gateway_);
    begin(more, before_->state_dir());
  }
  void begin_with_one(const std::string& more = "") {
    begin(more);
    ASSERT_EQ(run().status, 200);
    ASSERT_EQ(left(".place"), 1u);
  }
  void fail(const std::string& steps) { place_.file("fail", steps); }
  [[nodiscard]] Caller me() const { return {*gateway_, "me"}; }
  [[nodiscard]] Answer run() const { return me().post("/exec", {{"argv", {"true"}}}); }
  // The front knows of it afterwards.
  void kill_host() const {
    ::kill(host_of(*gateway_, "staged"), SIGKILL);
    ASSERT_TRUE(eventually(10, [&] { return logs("backend_down"); }));
  }
  [[nodiscard]] bool logs(const std::string& event) const {
    return gateway_->log().find("\"event\":\"" + event + "\"") != std::string::npos;
  }
  // The exit code.
  int stop() {
    gateway_->signal(SIGTERM);
    return gateway_->wait(40);
  }
  size_t left(const std::string& suffix) const {
    size_t count = 0;
    for (const auto& each : std::filesystem::directory_iterator(place_.path()))
      if (each.path().extension() == suffix) ++count;
    return count;
  }

  TemporaryDirectory place_;
  std::unique_ptr<Gateway> before_, gateway_;
};

TEST_F(LeftRunning, WhatADeadHostLeftIsStoppedAtTheEnd) {
  begin_with_one();
  kill_host();
  EXPECT_EQ(stop(), 0) << gateway_->log();
  EXPECT_EQ(left(".place"), 0u) << gateway_->log();
}

TEST_F(LeftRunning, WhatAHostThatDiedInACallLeftIsStoppedAtTheEnd) {
  begin_with_one();
  std::filesystem::remove(place_.path() + "/ran");
  fail("stuck-exec");
  auto call = std::async(std::launch::async, [this] { return run(); });
  ASSERT_TRUE(eventually(10, [&] { return std::filesystem::exists(place_.path() + "/ran"); }));
  ::kill(host_of(*gateway_, "staged"), SIGSTOP);
  fail("");
  kill_host();
  EXPECT_EQ(stop(), 0) << gateway_->log();
  EXPECT_EQ(left(".place"), 0u) << gateway_->log();
  EXPECT_EQ(call.get().status, 502);
}

// The end of its sandboxes takes longer than a backend host without a front has to end.
TEST_F(LeftRunning, WhatAFrontThatDiesInADrainHadOpenIsStoppedAndTheExitCodeSaysThatItDied) {
  begin_with_one();
  std::filesystem::remove(place_.path() + "/ran");
  fail("slow-exec slow-stop");
  auto call = std::async(std::launch::async, [this] { return run(); });
  ASSERT_TRUE(eventually(10, [&] { return std::filesystem::exists(place_.path() + "/ran"); }));
  gateway_->signal(SIGTERM);
  ASSERT_TRUE(eventually(10, [&] { return me().get("/readyz").status == 503; }));
  ::kill(front_of(*gateway_), SIGKILL);
  std::this_thread::sleep_for(milliseconds(3000));
  fail("");
  EXPECT_EQ(gateway_->wait(40), 1) << gateway_->log();
  EXPECT_EQ(left(".place"), 0u) << gateway_->log();
  EXPECT_TRUE(logs("not_drained")) << gateway_->log();
  EXPECT_FALSE(logs("backend_host_killed")) << gateway_->log();
}

TEST_F(LeftRunning, AStopSoonAfterAnInterruptedDeleteFinishesIt) {
  begin_with_one();
  fail("die-stop");
  EXPECT_EQ(me().call("DELETE", "/sandboxes/me").status, 503);
  fail("");
  EXPECT_EQ(stop(), 0) << gateway_->log();
  EXPECT_EQ(left(".place"), 0u) << gateway_->log();
}

TEST_F(LeftRunning, WhatAHostThatIsNotProbedYetHasToFindIsStoppedAtTheEnd) {
  begin_with_one();
  fail("slow-probe");
  kill_host();
  ASSERT_TRUE(eventually(10, [&] { return host_of(*gateway_, "staged") > 0; }));
  gateway_->signal(SIGTERM);
  std::this_thread::sleep_for(milliseconds(700));
  fail("");
  EXPECT_EQ(gateway_->wait(40), 0) << gateway_->log();
  EXPECT_EQ(left(".place"), 0u) << gateway_->log();
}

TEST_F(LeftRunning, WhatIsReAttachedAtASecondTryIsStoppedAtTheEnd) {
  begin_with_one();
  fail("re-attach");
  kill_host();
  ASSERT_TRUE(eventually(10, [&] { return logs("sandboxes_run_already"); }));
  gateway_->signal(SIGTERM);
  std::this_thread::sleep_for(milliseconds(500));
  fail("");
  EXPECT_EQ(gateway_->wait(40), 0) << gateway_->log();
  EXPECT_EQ(left(".place"), 0u) << gateway_->log();
}

TEST_F(LeftRunning, WhatNoHostTakesUntilTheDeadlineIsNamedAndTheExitCodeSaysSo) {
  begin_with_one("drain_timeout_sec: 1\n");
  fail("re-attach");
  kill_host();
  EXPECT_EQ(stop(), 1);
  EXPECT_TRUE(logs("sandboxes_left_open")) << gateway_->log();
}

TEST_F(LeftRunning, MoreThanALoweredLimitAllowsIsStoppedAtTheEnd) {
  begin_with_three_of_before("limits: {max_sandboxes: 1}\n");
  EXPECT_EQ(stop(), 0) << gateway_->log();
  EXPECT_EQ(left(".place"), 0u) << gateway_->log();
}

TEST_F(LeftRunning, WhatABackendCannotListIsNamedAndTheExitCodeSaysSo) {
  fail("enumerate");
  begin_with_three_of_before("drain_timeout_sec: 1\n");
  ASSERT_TRUE(eventually(10, [&] { return logs("sandboxes_not_enumerated"); })) << gateway_->log();
  EXPECT_EQ(stop(), 1);
  EXPECT_NE(gateway_->log().find("\"event\":\"sandboxes_left_open\",\"count\":3"), std::string::npos)
      << gateway_->log();
}

TEST_F(LeftRunning, WhatIsKeptWaitsForNoHost) {
  begin_with_one("on_shutdown: keep\n");
  fail("re-attach");
  kill_host();
  EXPECT_EQ(stop(), 0) << gateway_->log();
  EXPECT_EQ(left(".place"), 1u);
}

TEST_F(LeftRunning, AnIdleStopThatACrashInterruptsIsFinished) {
  begin_with_one("sandbox_idle_timeout_sec: 1\n");
  fail("die-stop");
  ASSERT_TRUE(eventually(20, [&] { return logs("sandbox_not_stopped"); })) << gateway_->log();
  fail("");
  EXPECT_TRUE(eventually(20, [&] { return left(".place") == 0; })) << gateway_->log();
  EXPECT_EQ(run().status, 200);
}

TEST_F(LeftRunning, ADeleteThatACrashInterruptsIsFinished) {
  for (const char* query : {"", "?purge=true"}) {
    SCOPED_TRACE(query);
    begin_with_one();
    fail(*query == '\0' ? "die-stop" : "die-purge");
    EXPECT_EQ(me().call("DELETE", std::string("/sandboxes/me") + query).status, 503);
    fail("");
    EXPECT_TRUE(eventually(20, [&] { return left(".place") == 0; })) << gateway_->log();
    EXPECT_TRUE(
        eventually(5, [&] { return *query == '\0' || me().get("/sandboxes").body.at("sandboxes").empty(); }));
    EXPECT_EQ(stop(), 0);
  }
}

TEST_F(LeftRunning, AnOpenThatACrashInterruptsIsEnded) {
  begin();
  fail("die-made");
  EXPECT_EQ(run().status, 503);
  ASSERT_EQ(left(".place"), 1u);
  fail("");
  EXPECT_TRUE(eventually(20, [&] { return left(".place") == 0; })) << gateway_->log();
  EXPECT_EQ(run().status, 200);
}

TEST_F(LeftRunning, APurgeThatFailedIsFinishedWhenIdleAndLeavesNoRecord) {
  begin_with_one("sandbox_idle_timeout_sec: 1\n");
  fail("purge");
  EXPECT_GE(me().call("DELETE", "/sandboxes/me?purge=true").status, 500);
  fail("");
  EXPECT_TRUE(eventually(20, [&] { return left(".workspace") == 0; })) << gateway_->log();
  EXPECT_TRUE(eventually(5, [&] { return me().get("/sandboxes").body.at("sandboxes").empty(); }))
      << me().get("/sandboxes").text;
}

}  // namespace
}  // namespace isogate::test
