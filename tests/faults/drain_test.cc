#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "tests/faults/faults.h"
#include "tests_dirs.h"

// SIGTERM while programs run.
namespace isogate::test {
namespace {

class Drain : public testing::Test {
 protected:
  void SetUp() override { SKIP_UNLESS_STARTABLE(); }
};

TEST_F(Drain, WhatFinishesInTimeFinishesAndTheRestIsKilled) {
  const auto gateway = start(std::string(kLocal) + "drain_timeout_sec: 6\n");
  const std::string mark = new_mark();
  std::vector<std::unique_ptr<ExecStream>> brief, endless;
  for (int i = 0; i < 100; ++i) {
    const Caller me(*gateway, "agent-" + std::to_string(i % 10));
    const bool ends = i % 2 == 0;
    const std::string command = ends ? "while [ ! -e go ]; do sleep 0.1; done; echo done"
                                     : "setsid -f sleep " + mark + "; sleep " + mark;
    auto& list = ends ? brief : endless;
    list.push_back(std::make_unique<ExecStream>(me, Json{{"command", command}, {"timeout_sec", 600}}, 60));
    ASSERT_EQ(list.back()->next()->at("event"), "start");
  }
  ASSERT_TRUE(there_within(30, mark, 100));
  std::vector<std::unique_ptr<HttpConnection>> open;
  for (int i = 0; i < 10; ++i) open.push_back(std::make_unique<HttpConnection>(gateway->url()));
  const Caller me(*gateway, "agent-0");
  const auto told = std::chrono::steady_clock::now();
  const auto since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - told).count();
  };
  gateway->signal(SIGTERM);
  EXPECT_TRUE(eventually(2, [&] { return me.get("/readyz").status == 503; })) << "/readyz still says ready";
  EXPECT_TRUE(refused(me.get("/readyz"), 503, "draining"));
  EXPECT_EQ(me.get("/livez").status, 200);
  const Answer late = me.exec("true");
  EXPECT_TRUE(refused(late, 503, "draining"));
  EXPECT_GE(std::atoi(late.header("Retry-After").c_str()), 1);
  for (int i = 0; i < 10; i += 2)
    EXPECT_TRUE(succeeded(me.as("agent-" + std::to_string(i)).write("go", ""))) << "files are still served";
  for (auto& stream : brief) {
    const auto events = stream->rest();
    EXPECT_EQ(events.back().at("outcome"), "exited");
    EXPECT_EQ(data_of(events, "stdout"), "done\n");
  }
  for (auto& stream : endless) {
    const Json end = stream->rest().back();
    EXPECT_EQ(end.at("event"), "exit");
    EXPECT_EQ(end.at("outcome"), "killed") << end;
    EXPECT_EQ(end.at("exit_code"), 137);
    EXPECT_GE(since(), 5.5) << "it did not get its time";
  }
  EXPECT_EQ(gateway->wait(20), 0) << gateway->log();
  EXPECT_LT(since(), 6 + 10.0) << "the deadline was exceeded";
  EXPECT_TRUE(gone_within(1, mark));
}

TEST_F(Drain, AnIdleGatewayEndsAtOnce) {
  const auto gateway = start(kLocal);
  Caller(*gateway, "a").run("true");
  HttpConnection idle(gateway->url());
  EXPECT_EQ(idle.request("GET", "/livez").status, 200);
  const double took = seconds_of([&] { gateway->stop(20); });
  EXPECT_LT(took, 5.0);
  EXPECT_TRUE(idle.closed_within(1));
}

// It takes calls as soon as one backend can serve them.
TEST_F(Drain, BeforeEveryBackendIsProbedCallsGetTheirTime) {
  const TemporaryDirectory stage;
  ::chmod(stage.path().c_str(), 0777);
  stage.file("fail", "slow-probe");
  const auto gateway = start(
      "drain_timeout_sec: 20\nallow_unisolated: true\nbackends:\n  - name: local\n  - name: staged\n"
      "    plugin: " ISOGATE_BUILD_DIR "/test_plugins/staged.so\n    config: {stage: " +
      stage.path() + "}\n");
  ExecStream stream(Caller(*gateway, "a"), {{"command", "sleep 2; echo done"}, {"timeout_sec", 60}}, 60);
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(gateway->log().find("\"event\":\"ready\""), std::string::npos) << "nothing delays it";
  gateway->signal(SIGTERM);
  const auto events = stream.rest();
  EXPECT_EQ(events.back().at("outcome"), "exited") << events.back();
  EXPECT_EQ(data_of(events, "stdout"), "done\n");
  EXPECT_EQ(gateway->wait(45), 0) << gateway->log();
}

TEST_F(Drain, ASecondSignalDoesNotWait) {
  const auto gateway = start(std::string(kLocal) + "drain_timeout_sec: 300\n");
  const std::string mark = new_mark();
  ExecStream stream(Caller(*gateway, "a"), {{"command", "sleep " + mark}, {"timeout_sec", 600}});
  ASSERT_TRUE(there_within(10, mark));
  gateway->signal(SIGTERM);
  EXPECT_TRUE(eventually(5, [&] { return http_call(gateway->url(), "GET", "/readyz").status == 503; }));
  gateway->signal(SIGTERM);
  EXPECT_NE(gateway->wait(15), -1) << "it still waits";
  EXPECT_TRUE(gone_within(1, mark));
}

TEST_F(Drain, TheJournalIsWholeAfterwards) {
  const auto gateway = start(std::string(kLocal) + "drain_timeout_sec: 1\n");
  const std::string mark = new_mark();
  const Caller me(*gateway, "a");
  me.run("exit 3");
  ExecStream stream(me, {{"command", "sleep " + mark}, {"timeout_sec", 600}});
  ASSERT_TRUE(there_within(10, mark));
  gateway->stop();
  auto journal = journal_of(gateway->state_dir());
  EXPECT_EQ(journal["exit 3"].outcome, "exited");
  EXPECT_EQ(journal["sleep " + mark].outcome, "killed");
  EXPECT_TRUE(journal["sleep " + mark].ended);
}

}  // namespace
}  // namespace isogate::test
