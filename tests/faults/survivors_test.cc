#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/faults/faults.h"

// What an exec leaves behind, with a cgroup leaf and with only a reaper.
namespace isogate::test {
namespace {

struct TreeKill {
  const char* name;
  const char* cgroups;
  double bound;  // seconds from the deadline to zero survivors
};

class Survivors : public testing::TestWithParam<TreeKill> {
 protected:
  void SetUp() override {
    SKIP_UNLESS_STARTABLE();
    gateway_ = start(std::string("allow_unisolated: true\nbackends: [{name: local, config: {cgroups: ") +
                     GetParam().cgroups + "}}]\n");
    const std::string detail = backend_row(me(), "local").at("detail");
    if (detail.find(GetParam().name) != std::string::npos) return;
    ASSERT_STREQ(GetParam().name, "cgroup2 leaf") << "every host has the other: " << detail;
    GTEST_SKIP() << "there are no cgroup2 leaves here: " << detail;
  }
  Caller me() const { return {*gateway_, "a"}; }
  std::unique_ptr<Gateway> gateway_;
};

// 17: at most 100 ms more than without the child.
TEST_P(Survivors, AChildThatHoldsStdoutCostsNoTime) {
  me().run("true");
  double plain = 1e9, held = 1e9;
  for (int i = 0; i < 7; ++i) {
    const std::string mark = new_mark();
    plain = std::min(
        plain, seconds_of([&] { EXPECT_EQ(me().run("echo same bytes").at("stdout"), "same bytes\n"); }));
    held = std::min(
        held, seconds_of([&] {
          EXPECT_EQ(
              me().run("sleep " + mark + " & setsid -f sleep " + mark + "; echo same bytes").at("stdout"),
              "same bytes\n");
        }));
    EXPECT_TRUE(gone_within(GetParam().bound, mark));
  }
  EXPECT_LT(held, plain + 0.1);
}

// 18: whatever the program does at its timeout.
TEST_P(Survivors, NothingIsLeftAfterATimeout) {
  const std::string mark = new_mark();
  std::vector<std::string> commands = stubborn_commands(mark);
  commands.push_back("f() { setsid sh -c 'sleep " + mark + "' & sleep 0.01; f; }; f");
  commands.push_back("sleep " + mark + " & kill -STOP $!; setsid -f sh -c 'kill -STOP $$; : " + mark +
                     "'; kill -STOP $$");
  for (const std::string& command : commands) {
    const Json result = me().run(command, {{"timeout_sec", 1}});
    EXPECT_EQ(result.at("outcome"), "timed_out") << command;
    EXPECT_TRUE(gone_within(GetParam().bound, mark)) << marked(mark).size() << " survivors of " << command;
    EXPECT_LT(result.at("duration_ms").get<double>(), 6000) << command;
  }
}

TEST_P(Survivors, NothingIsLeftAfterManyShortTimeouts) {
  const std::string mark = new_mark();
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&] {
      for (int j = 0; j < 10; ++j)
        EXPECT_EQ(me().run("setsid -f sleep " + mark + "; sleep " + mark + " & sleep " + mark,
                           {{"timeout_sec", 0.05 + 0.01 * j}})
                      .at("outcome"),
                  "timed_out");
    });
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(gone_within(GetParam().bound, mark)) << marked(mark).size() << " survivors";
}

// 19: readers at 10 KiB/s.
TEST_P(Survivors, SlowReadersCostLittleAndCanLeave) {
  me().run("true");
  const pid_t front = front_of(*gateway_);
  const long before = resident_kib(front);
  const std::string mark = new_mark();
  std::vector<std::unique_ptr<ExecStream>> streams;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(
        std::make_unique<ExecStream>(me(), Json{{"command", "yes " + mark}, {"timeout_sec", 100}}));
    ASSERT_EQ(streams.back()->next()->at("event"), "start");
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < until)
    for (auto& stream : streams) {
      EXPECT_FALSE(stream->connection.read_some().empty());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  EXPECT_LT(resident_kib(front) - before, kib_bound(8 * 1024)) << "KiB more for 8 streams";
  streams.clear();
  EXPECT_TRUE(gone_within(1, mark)) << "the programs of readers that left still run";
}

INSTANTIATE_TEST_SUITE_P(TreeKills, Survivors,
                         testing::Values(TreeKill{"cgroup2 leaf", "auto", 1}, TreeKill{"reaper", "never", 3}),
                         [](const auto& one) { return std::string(one.param.cgroups) + "_cgroups"; });

}  // namespace
}  // namespace isogate::test
