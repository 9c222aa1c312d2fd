#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/eventually.h"
#include "tests/supervisor/harness.h"

namespace isogate::test {
namespace {

class Reload : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_USERS(); }
};

TEST_F(Reload, keeps_what_has_not_changed) {
  Supervised gateway({.backends = {backend("one"), backend("two")}});
  gateway.told_front("one", "up");
  gateway.told_front("two", "up");
  gateway.reload([](Config& config) {
    config.limits.exec_queue = 7;
    config.exec.env = {{"NEW", "1"}};
    std::swap(config.backends[0], config.backends[1]);
  });
  const Json reload = gateway.line("front got reload")["message"];
  EXPECT_EQ(backend_names(reload), Json({"two", "one"}));
  EXPECT_EQ(reload["config"]["limits"]["exec_queue"], 7);
  gateway.line("reloaded");
  ::usleep(300'000);
  EXPECT_EQ(gateway.count("backend_host_started"), 2);
  EXPECT_EQ(gateway.count("front_started"), 1);
}

TEST_F(Reload, replaces_a_changed_backend_without_a_gap) {
  Supervised gateway;
  gateway.told_front("one", "up");
  const pid_t old_host = gateway.host_pid("one");
  gateway.reload([](Config& config) { config.backends[0].egress = ISOGATE_EGRESS_DENY; });
  EXPECT_EQ(gateway.told_front("one", "up", 2)["generation"], 2);
  EXPECT_TRUE(gone_within(old_host, 5)) << "the front closed its old socket";
  ::usleep(300'000);
  EXPECT_EQ(gateway.count("backend_down"), 0) << "a replaced host's end is no crash";
  EXPECT_EQ(gateway.count("backend_host_started"), 2);
  EXPECT_TRUE(runs(gateway.host_pid("one", 2)));
}

TEST_F(Reload, tells_the_front_whether_a_host_has_the_settings_of_the_one_before) {
  Supervised gateway;
  EXPECT_EQ(gateway.told_front("one", "up")["settings"], 1);
  gateway.reload([](Config& config) { config.log.level = "debug"; });
  EXPECT_EQ(gateway.told_front("one", "up", 2)["settings"], 1);
  gateway.reload([](Config& config) { config.backends[0].egress = ISOGATE_EGRESS_DENY; });
  EXPECT_EQ(gateway.told_front("one", "up", 3)["settings"], 3);
}

TEST_F(Reload, replaces_hosts_by_what_they_read_though_no_sandbox_depends_on_it) {
  Supervised gateway;
  gateway.told_front("one", "up");
  const std::function<void(Config&)> changes[] = {
      [](Config& config) { config.limits.max_execs = 9000; },
      [](Config& config) { config.limits.max_sandboxes = 90000; },
      [](Config& config) { config.allow_unisolated = !config.allow_unisolated; }};
  int generation = 1;
  for (const auto& change : changes) {
    gateway.reload(change);
    EXPECT_EQ(gateway.told_front("one", "up", ++generation)["settings"], 1) << generation;
  }
}

TEST_F(Reload, replaces_a_host_whose_plugin_file_changed) {
  TemporaryDirectory plugins;
  const std::string plugin = plugins.file("x.so", "version 1");
  Supervised gateway({.change = [&](Config& config) { config.plugin_dir = plugins.path(); }});
  gateway.told_front("one", "up");
  gateway.reload([](Config&) {});
  gateway.line("reloaded");
  EXPECT_EQ(gateway.count("backend_host_started"), 1);
  plugins.file("x.so", "version 2, longer");
  gateway.reload([](Config&) {});
  EXPECT_EQ(gateway.told_front("one", "up", 2)["generation"], 2);
}

TEST_F(Reload, adds_and_removes) {
  Supervised gateway({.backends = {backend("one"), backend("two")}});
  gateway.told_front("one", "up");
  gateway.told_front("two", "up");
  const pid_t one = gateway.host_pid("one");
  gateway.reload([](Config& config) { config.backends = {backend("two"), backend("three")}; });
  EXPECT_EQ(backend_names(gateway.line("front got reload")["message"]), Json({"two", "three"}));
  gateway.told_front("three", "up");
  EXPECT_TRUE(gone_within(one, 5));
  EXPECT_EQ(gateway.count("backend_down"), 0);
  EXPECT_TRUE(eventually(5, [&] { return children_of(gateway.pid()).size() == 3; }))
      << "it is reaped after its end";
  gateway.reload([](Config& config) { config.backends.push_back(backend("one")); });
  gateway.told_front("one", "up", 2);
}

TEST_F(Reload, gives_a_quarantined_and_a_failed_backend_another_chance) {
  Supervised gateway({.backends = {backend("one", "crash"), backend("two", "failed")},
                      .change_options = [](ServeOptions& options) { options.timings.crash_limit = 2; }});
  EXPECT_EQ(gateway.told_front("one", "down", 2)["quarantined"], true);
  gateway.told_front("two", "down");
  gateway.reload([](Config& config) { config.backends = {backend("one"), backend("two", "failed")}; });
  EXPECT_EQ(gateway.told_front("one", "up")["generation"], 3);
  EXPECT_EQ(gateway.told_front("two", "down", 2)["generation"], 2);
}

TEST_F(Reload, refuses_what_contradicts_the_settings_of_the_start) {
  const TemporaryDirectory first, second, third;
  Supervised gateway({.change = [&](Config& config) { config.workdir = first.path(); }});
  gateway.told_front("one", "up");
  gateway.reload([&](Config& config) {
    config.workdir = second.path();
    config.shared_dirs.push_back({.prefix = "old", .path = first.path()});
  });
  EXPECT_NE(gateway.line("reload_refused")["reason"].get<std::string>().find("only a restart changes"),
            std::string::npos);
  const std::string link = third.path() + "/link";
  ASSERT_EQ(::symlink(first.path().c_str(), link.c_str()), 0);
  gateway.reload([&](Config& config) { config.shared_dirs.back().path = link; });
  EXPECT_NE(gateway.line("reload_refused", 2)["reason"].get<std::string>().find("(that is `" + first.path()),
            std::string::npos);
  EXPECT_EQ(gateway.count("front got reload"), 0);
  EXPECT_EQ(gateway.count("backend_host_started"), 1);
}

TEST_F(Reload, an_error_keeps_the_old_configuration) {
  Supervised gateway({.change_options = [](ServeOptions& options) {
    options.reload = []() -> Result<Loaded> { return invalid("line 3: no such setting `lisen`"); };
  }});
  gateway.told_front("one", "up");
  gateway.signal(SIGHUP);
  EXPECT_EQ(gateway.line("reload_refused")["reason"], "line 3: no such setting `lisen`");
  EXPECT_EQ(gateway.count("front got reload"), 0);
  EXPECT_TRUE(runs(gateway.host_pid("one")));
}

TEST_F(Reload, a_mistake_in_one_backend_leaves_everything_as_it_was) {
  Supervised gateway({.backends = {backend("one"), backend("two")}});
  gateway.told_front("one", "up");
  gateway.told_front("two", "up");
  const pid_t one = gateway.host_pid("one"), two = gateway.host_pid("two");
  gateway.reload([](Config& config) {
    config.limits.exec_queue = 7;
    config.backends = {backend("one", "serve"), backend("three"), backend("two", "mistaken")};
  });
  EXPECT_EQ(gateway.line("reload_refused")["reason"], "`backends[2].config`: `procs` is unknown");
  EXPECT_TRUE(gone_within(gateway.host_pid("one", 2), 5)) << "hosts on trial end";
  EXPECT_TRUE(gone_within(gateway.host_pid("three"), 5));
  EXPECT_TRUE(runs(one));
  EXPECT_TRUE(runs(two));
  EXPECT_EQ(gateway.count("front got reload"), 0);
  EXPECT_EQ(gateway.count("front got backend"), 2);
  gateway.reload([](Config& config) { config.backends = {backend("one", "serve"), backend("two")}; });
  gateway.line("reloaded");
  gateway.told_front("one", "up", 2);
  EXPECT_TRUE(gone_within(one, 5));
  EXPECT_TRUE(runs(two));
}

TEST_F(Reload, a_missing_plugin_ends_no_running_host) {
  TemporaryDirectory plugins;
  plugins.file("x.so", "version 1");
  Supervised gateway({.change = [&](Config& config) { config.plugin_dir = plugins.path(); }});
  gateway.told_front("one", "up");
  const pid_t host = gateway.host_pid("one");
  ::unlink((plugins.path() + "/x.so").c_str());
  gateway.reload([](Config&) {});
  const std::string reason = gateway.line("reload_refused")["reason"];
  EXPECT_NE(reason.find("plugin `x` is not installed"), std::string::npos) << reason;
  EXPECT_TRUE(runs(host));
}

TEST_F(Reload, a_replacement_that_fails_takes_the_backend_down) {
  Supervised gateway;
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) { config.backends = {backend("one", "failed")}; });
  const Json down = gateway.told_front("one", "down");
  EXPECT_EQ(down["generation"], 2);
  EXPECT_EQ(down["restarting"], false);
  EXPECT_TRUE(gone_within(gateway.host_pid("one"), 5));
}

TEST_F(Reload, a_replacement_that_hangs_or_crashes_changes_nothing) {
  for (const auto& [act, why] :
       {std::pair{"never-ready",
                  "`backends[0]`: backend host was killed: it did not become ready within 2 s"},
        {"crash", "`backends[0]`: backend host crashed: signal 6 (SIGABRT)"}}) {
    Supervised gateway({.change_options = [](ServeOptions& options) {
      options.timings.ready = std::chrono::milliseconds(2000);
    }});
    gateway.told_front("one", "up");
    gateway.reload([&](Config& config) {
      config.limits.exec_queue = 7;
      config.backends = {backend("one", act)};
    });
    EXPECT_EQ(gateway.line("reload_refused")["reason"], why);
    EXPECT_EQ(gateway.count("front got reload"), 0);
    EXPECT_EQ(gateway.count("reloaded"), 0);
    EXPECT_EQ(gateway.count("front got backend"), 1);
    EXPECT_TRUE(runs(gateway.host_pid("one")));
  }
}

// The front has adopted the new configuration: what the old host serves is not by that.
TEST_F(Reload, a_replacement_that_crashes_once_the_front_was_asked_takes_the_backend_down) {
  Supervised gateway({.instance = "late"});
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) { config.backends[0].egress = ISOGATE_EGRESS_DENY; });
  gateway.line("front got reload");
  ::kill(gateway.host_pid("one", 2), SIGKILL);
  const Json down = gateway.told_front("one", "down");
  EXPECT_EQ(down["generation"], 2);
  EXPECT_EQ(down["restarting"], true);
  EXPECT_TRUE(gone_within(gateway.host_pid("one"), 5));
  EXPECT_EQ(gateway.told_front("one", "up", 2)["generation"], 3);
}

TEST_F(Reload, what_only_a_start_can_change_is_named) {
  Supervised gateway;
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) {
    config.listen = {"127.0.0.1:1"};
    config.instance = "other";
    config.wait_for_sidecar = "127.0.0.1:2";
  });
  for (const char* name : {"listen", "instance", "wait_for_sidecar"})
    gateway.line("setting_needs_restart", 1, [&](const Json& line) { return line["setting"] == name; });
  EXPECT_EQ(gateway.line("front got reload")["message"]["config"]["instance"], "normal");
  EXPECT_EQ(gateway.count("backend_host_started"), 1);
}

TEST_F(Reload, keys_that_come_and_go_reach_the_front) {
  Supervised gateway;
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) { config.keys = {{"ci", "acme", std::string(64, 'a')}}; });
  EXPECT_EQ(gateway.line("front got reload", 1)["message"]["local_key_sha256"], "");
  gateway.reload([](Config& config) { config.keys.clear(); });
  EXPECT_EQ(gateway.line("front got reload", 2)["message"]["local_key_sha256"],
            gateway.line("front got start")["message"]["local_key_sha256"]);
}

TEST_F(Reload, a_front_that_does_not_answer_is_replaced_by_one_with_the_new_configuration) {
  Supervised gateway({.instance = "mute", .change_options = [](ServeOptions& options) {
                        options.timings.reload = std::chrono::seconds(2);
                      }});
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) {
    config.limits.exec_queue = 7;
    config.backends.push_back(backend("two"));
  });
  EXPECT_EQ(gateway.line("front_killed")["reason"], "did not adopt a new configuration in time");
  EXPECT_EQ(gateway.line("front got start", 2)["message"]["config"]["limits"]["exec_queue"], 7);
  gateway.told_front("two", "up");
  gateway.told_front("one", "up", 2);
  std::vector<std::string> order;
  for (const Json& line : gateway.lines())
    for (const char* event : {"front got reload", "front_killed", "front_crashed", "reloaded"})
      if (line.value("event", "") == event) order.emplace_back(event);
  EXPECT_EQ(Json(order), Json({"front got reload", "front_killed", "reloaded", "front_crashed"}));
  EXPECT_EQ(gateway.count("backend_down"), 0);
}

TEST_F(Reload, what_the_front_refuses_changes_nothing) {
  Supervised gateway({.instance = "refuses"});
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) { config.backends = {backend("one", "serve"), backend("two")}; });
  EXPECT_EQ(gateway.line("reload_refused")["reason"], "no such tenant");
  EXPECT_TRUE(gone_within(gateway.host_pid("one", 2), 5)) << "hosts on trial end";
  EXPECT_TRUE(gone_within(gateway.host_pid("two"), 5));
  EXPECT_TRUE(runs(gateway.host_pid("one")));
  EXPECT_EQ(gateway.count("reloaded"), 0);
  EXPECT_EQ(gateway.count("front got backend"), 1);
}

TEST_F(Reload, a_front_that_ends_instead_of_an_answer_is_followed_by_one_with_the_new_configuration) {
  Supervised gateway({.instance = "mute"});
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) { config.limits.exec_queue = 7; });
  gateway.line("front got reload");
  EXPECT_EQ(gateway.count("reloaded"), 0);
  ::kill(gateway.front_pid(), SIGKILL);
  EXPECT_EQ(gateway.line("front got start", 2)["message"]["config"]["limits"]["exec_queue"], 7);
  gateway.line("reloaded");
}

// The hosts that the lost front had may still have sandboxes.
TEST_F(Reload, adopted_without_a_front_it_starts_no_host_beside_one_that_is_ending) {
  Supervised gateway({.backends = {backend("one", "linger")},
                      .instance = "mute",
                      .change_options = [](ServeOptions& options) {
                        options.timings.leave = std::chrono::milliseconds(1000);
                      }});
  gateway.told_front("one", "up");
  const pid_t old_host = gateway.host_pid("one");
  gateway.reload([](Config& config) { config.backends = {backend("one", "serve")}; });
  gateway.line("front got reload");
  ::kill(gateway.front_pid(), SIGKILL);
  gateway.line("reloaded");
  EXPECT_EQ(gateway.told_front("one", "up", 2)["generation"], 3) << "not the one that was on trial";
  EXPECT_FALSE(runs(old_host));
  EXPECT_FALSE(runs(gateway.host_pid("one", 2)));
  EXPECT_EQ(gateway.line("host got start", 3)["message"]["config"]["backends"][0]["config"]["act"], "serve");
  EXPECT_EQ(gateway.count("backend_down"), 0);
}

TEST_F(Reload, a_replaced_host_that_the_front_gave_up_is_still_killed) {
  Supervised gateway({.backends = {backend("one", "linger")},
                      .instance = "gives-up",
                      .change_options = [](ServeOptions& options) {
                        options.timings.leave = std::chrono::milliseconds(2000);
                      }});
  gateway.told_front("one", "up");
  const pid_t old_host = gateway.host_pid("one");
  gateway.reload([](Config& config) { config.backends = {backend("one", "serve")}; });
  gateway.told_front("one", "up", 2);
  EXPECT_TRUE(gone_within(old_host, 10));
}

// Which configuration the gateway stops with is known once the front has answered, or is killed.
TEST_F(Reload, a_stop_waits_for_the_answer_of_the_front) {
  Supervised gateway({.instance = "mute", .change_options = [](ServeOptions& options) {
                        options.timings.reload = std::chrono::seconds(2);
                      }});
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) { config.limits.exec_queue = 7; });
  gateway.line("front got reload");
  gateway.signal(SIGTERM);
  gateway.line("front_killed");
  EXPECT_EQ(gateway.wait(), 1) << "a process had to be killed";
  std::vector<std::string> order;
  for (const Json& line : gateway.lines())
    for (const char* event : {"front_killed", "reloaded", "draining", "stopped"})
      if (line.value("event", "") == event) order.emplace_back(event);
  EXPECT_EQ(Json(order), Json({"front_killed", "reloaded", "draining", "stopped"}));
  EXPECT_EQ(gateway.count("front_started"), 1);
}

TEST_F(Reload, a_second_signal_to_stop_does_not_wait_for_it) {
  Supervised gateway({.instance = "mute"});
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) { config.limits.exec_queue = 7; });
  gateway.line("front got reload");
  gateway.signal(SIGTERM);
  gateway.signal(SIGINT);
  EXPECT_EQ(gateway.wait(), 1);
  gateway.line("stopping_at_once");
  EXPECT_EQ(gateway.count("front_crashed"), 0);
  EXPECT_EQ(gateway.count("front_started"), 1);
}

TEST_F(Reload, a_stop_drops_a_reload_that_the_front_was_not_asked_for) {
  Supervised gateway;
  gateway.told_front("one", "up");
  gateway.reload([](Config& config) { config.backends.push_back(backend("two", "never-ready")); });
  ASSERT_GT(gateway.host_pid("two"), 0);
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_EQ(gateway.line("reload_refused")["reason"], "the gateway stops before it is decided");
  EXPECT_EQ(gateway.count("front got reload"), 0);
}

TEST_F(Reload, a_burst_of_signals_is_survived) {
  Supervised gateway({.backends = {backend("one"), backend("two")}});
  gateway.told_front("one", "up");
  for (int i = 0; i < 50; ++i)
    gateway.reload([i](Config& config) {
      config.backends[0].egress = i % 2 == 0 ? ISOGATE_EGRESS_DENY : ISOGATE_EGRESS_ALLOW;
    });
  ::usleep(1'500'000);
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 0);
}

}  // namespace
}  // namespace isogate::test
