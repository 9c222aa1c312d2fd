#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/supervisor/harness.h"

namespace isogate::test {
namespace {

using Clock = std::chrono::steady_clock;

class Drain : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_USERS(); }

  static void up(const Supervised& gateway) { gateway.told_front("one", "up"); }
  static void stop_within_2_s(ServeOptions& options) { options.timings.stop = std::chrono::seconds(2); }
};

std::vector<std::string> events_of(const Supervised& gateway) {
  std::vector<std::string> all;
  for (const Json& line : gateway.lines()) all.push_back(line.value("event", ""));
  return all;
}

bool in_order(const std::vector<std::string>& all, const std::vector<std::string>& wanted) {
  auto at = all.begin();
  for (const std::string& each : wanted) {
    at = std::find(at, all.end(), each);
    if (at == all.end()) return false;
  }
  return true;
}

TEST_F(Drain, front_first_then_the_hosts_then_the_front_ends) {
  Supervised gateway({.backends = {backend("one"), backend("two")}});
  up(gateway);
  gateway.told_front("two", "up");
  const std::vector<pid_t> children = children_of(gateway.pid());
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_TRUE(in_order(events_of(gateway), {"draining", "front got drain", "host got stop", "host got stop",
                                            "front sees the end", "stopped"}))
      << gateway.log();
  EXPECT_EQ(gateway.line("front got drain")["message"]["deadline_sec"], 2);
  EXPECT_EQ(gateway.line("host got stop")["message"]["mode"], "stop");
  EXPECT_EQ(gateway.count("host sees the end of its front"), 0);
  for (const pid_t child : children) EXPECT_FALSE(runs(child));
  EXPECT_NE(::access((gateway.state_dir() + "/isogate.sock").c_str(), F_OK), 0);
}

TEST_F(Drain, sigint_is_the_same) {
  Supervised gateway;
  up(gateway);
  gateway.signal(SIGINT);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_EQ(gateway.count("front got drain"), 1);
}

TEST_F(Drain, keeping_sandboxes_detaches) {
  Supervised gateway({.change = [](Config& config) { config.keep_on_shutdown = true; }});
  up(gateway);
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_EQ(gateway.line("host got stop")["message"]["mode"], "detach");
}

TEST_F(Drain, a_front_that_does_not_drain_is_waited_for_so_long_and_no_longer) {
  Supervised gateway({.instance = "no-drain"});
  up(gateway);
  const auto start = Clock::now();
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_GE(since(start), 2.4) << "drain_timeout_sec and the extra";
  EXPECT_LT(since(start), 8);
  EXPECT_EQ(gateway.count("front_drain_timed_out"), 1);
  EXPECT_EQ(gateway.count("host got stop"), 1);
}

TEST_F(Drain, a_host_that_ignores_the_stop_is_killed_and_the_exit_code_says_so) {
  Supervised gateway({.backends = {backend("one", "ignore-stop")}, .change_options = stop_within_2_s});
  up(gateway);
  const pid_t host = gateway.host_pid("one");
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_FALSE(runs(host));
  EXPECT_EQ(gateway.line("backend_host_killed")["reason"], "did not stop within 2 s");
}

TEST_F(Drain, a_front_that_does_not_end_is_killed_and_the_exit_code_says_so) {
  Supervised gateway({.instance = "no-end", .change_options = stop_within_2_s});
  up(gateway);
  const pid_t front = gateway.front_pid();
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_FALSE(runs(front));
}

TEST_F(Drain, a_second_signal_stops_at_once) {
  Supervised gateway(
      {.instance = "no-drain", .change = [](Config& config) { config.drain_timeout_sec = 100; }});
  up(gateway);
  const std::vector<pid_t> children = children_of(gateway.pid());
  gateway.signal(SIGTERM);
  gateway.line("front got drain");
  const auto start = Clock::now();
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_LT(since(start), 5);
  for (const pid_t child : children) EXPECT_FALSE(runs(child));
}

TEST_F(Drain, a_front_that_dies_while_draining_is_not_started_again) {
  for (const bool keep : {false, true}) {
    Supervised gateway({.instance = "no-drain", .change = [&](Config& config) {
                          config.drain_timeout_sec = 100;
                          config.keep_on_shutdown = keep;
                        }});
    up(gateway);
    gateway.signal(SIGTERM);
    gateway.line("front got drain");
    ::kill(gateway.front_pid(), SIGKILL);
    EXPECT_EQ(gateway.wait(), 1) << "it has not drained";
    EXPECT_EQ(gateway.line("not_drained")["reason"], "the front ended before it had drained");
    EXPECT_EQ(gateway.count("front_started"), 1);
    EXPECT_EQ(gateway.count("backend_host_started"), 1);
  }
}

TEST_F(Drain, a_host_knows_how_to_close_before_the_front_can_die) {
  Supervised gateway(
      {.backends = {backend("one", "slow-end")},
       .instance = "no-drain",
       .change = [](Config& config) { config.drain_timeout_sec = 100; },
       .change_options =
           [](ServeOptions& options) { options.timings.leave = std::chrono::milliseconds(200); }});
  up(gateway);
  gateway.signal(SIGTERM);
  gateway.line("front got drain");
  EXPECT_EQ(gateway.line("host got mode")["message"]["mode"], "stop");
  ::kill(gateway.front_pid(), SIGKILL);
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_EQ(gateway.count("backend_host_killed"), 0) << "it has the time of a stop";
}

TEST_F(Drain, a_stop_while_there_is_no_front_says_that_something_may_be_left) {
  for (const bool keep : {false, true}) {
    Supervised gateway({.change = [&](Config& config) { config.keep_on_shutdown = keep; },
                        .change_options =
                            [](ServeOptions& options) {
                              options.timings.first_backoff = options.timings.longest_backoff =
                                  std::chrono::seconds(60);
                            }});
    up(gateway);
    ::kill(gateway.front_pid(), SIGKILL);
    gateway.line("front_crashed");
    gateway.signal(SIGTERM);
    EXPECT_EQ(gateway.wait(), keep ? 0 : 1);
    EXPECT_EQ(gateway.count("not_drained"), keep ? 0 : 1);
  }
}

TEST_F(Drain, a_front_that_breaks_the_protocol_at_the_end_is_killed_and_the_exit_code_says_so) {
  Supervised gateway({.backends = {backend("one", "slow-end")}, .instance = "ready-at-the-end"});
  up(gateway);
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_EQ(gateway.line("front_killed")["reason"], "sent `ready` twice");
}

TEST_F(Drain, a_host_that_crashes_while_draining_is_restarted_to_end_what_it_left) {
  Supervised gateway(
      {.instance = "no-drain", .change = [](Config& config) { config.drain_timeout_sec = 8; }});
  up(gateway);
  gateway.signal(SIGTERM);
  gateway.line("front got drain");
  gateway.line("host got mode");
  ::kill(gateway.host_pid("one"), SIGKILL);
  const Json down = gateway.told_front("one", "down");
  EXPECT_EQ(down["restarting"], true);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_EQ(gateway.count("backend_host_started"), 2);
  EXPECT_EQ(gateway.count("host got mode"), 2) << "the next one, too, knows how to close";
}

TEST_F(Drain, a_stop_before_anything_is_ready_ends_in_order) {
  Supervised gateway({.backends = {backend("one", "never-ready")}, .instance = "never-ready"});
  EXPECT_GT(gateway.front_pid(), 0);
  EXPECT_GT(gateway.host_pid("one"), 0);
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_EQ(gateway.count("front got drain"), 0);
}

TEST_F(Drain, a_front_that_serves_and_is_not_ready_drains) {
  Supervised gateway({.instance = "serves"});
  gateway.told_front("one", "up");
  ::usleep(200'000);  // its `serving` is taken
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_EQ(gateway.count("front got drain"), 1);
  EXPECT_EQ(gateway.count("ready"), 0);
}

TEST_F(Drain, what_a_host_left_running_is_ended) {
  Supervised gateway({.backends = {backend("one", "orphan")}});
  up(gateway);
  pid_t orphan = -1;
  const auto start = Clock::now();
  while (orphan < 0 && since(start) < 5)
    for (const pid_t child : children_of(gateway.pid()))
      if (child != gateway.front_pid() && child != gateway.host_pid("one") &&
          read_whole("/proc/" + std::to_string(child) + "/comm") == "sleep\n")
        orphan = child;
  ASSERT_GT(orphan, 0) << "the supervisor is no subreaper";
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_FALSE(runs(orphan));
}

TEST_F(Drain, the_state_directory_can_be_used_again) {
  TemporaryDirectory directory;
  for (int round = 0; round < 2; ++round) {
    Supervised gateway({.state_dir = directory.path() + "/state"});
    up(gateway);
    gateway.signal(SIGTERM);
    ASSERT_EQ(gateway.wait(), 0) << gateway.log();
  }
}

TEST_F(Drain, a_killed_supervisor_takes_its_children_along_and_leaves_the_way_free) {
  TemporaryDirectory directory;
  const std::string state = directory.path() + "/state";
  Supervised first({.state_dir = state});
  up(first);
  const std::vector<pid_t> children = children_of(first.pid());
  ASSERT_EQ(children.size(), 2u);
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 128 + SIGKILL);
  for (const pid_t child : children) EXPECT_TRUE(gone_within(child, 2));
  Supervised second({.state_dir = state});
  up(second);
}

}  // namespace
}  // namespace isogate::test
