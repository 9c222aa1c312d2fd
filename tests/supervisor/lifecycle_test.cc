#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <fstream>

#include "lib/hash.h"
#include "tests/supervisor/harness.h"
#include "tests/support/http.h"

namespace isogate::test {
namespace {

using Clock = std::chrono::steady_clock;

class Lifecycle : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_USERS(); }
};

TEST_F(Lifecycle, starts_a_front_and_a_host_for_each_backend) {
  Supervised gateway({.backends = {backend("one"), backend("two")}});
  const Json start = gateway.line("front got start");
  EXPECT_EQ(start["fds"], 2);
  EXPECT_EQ(backend_names(start["message"]), Json({"one", "two"}));
  EXPECT_EQ(start["message"]["state_dir"], gateway.state_dir());
  EXPECT_EQ(start["message"]["listeners"].size(), 2u);
  EXPECT_EQ(start["message"]["peer_uids"][0], 0);
  for (const char* name : {"one", "two"}) {
    EXPECT_EQ(gateway.told_front(name, "up")["generation"], 1);
    const Json host =
        gateway.line("host got start", 1, [&](const Json& line) { return line["name"] == name; })["message"];
    EXPECT_EQ(host["backend"], name);
    EXPECT_EQ(host["generation"], 1);
    EXPECT_EQ(host["sandboxes_dir"], gateway.state_dir() + "/sandboxes");
    EXPECT_EQ(host["uids_dir"], gateway.state_dir() + "/uids");
    EXPECT_EQ(host["plugin_copy_dir"], gateway.state_dir() + "/run/" + name + ".1");
  }
  EXPECT_NE(gateway.line("ready").value("listen", "").find("127.0.0.1:"), std::string::npos);
}

TEST_F(Lifecycle, says_at_every_start_in_which_way_it_is_weaker) {
  Supervised gateway;
  EXPECT_EQ(gateway.line("relaxation")["text"], "a relaxation");
  EXPECT_EQ(gateway.line("relaxation")["level"], "warn");
  EXPECT_EQ(gateway.line("warning")["text"], "a warning");
}

TEST_F(Lifecycle, children_get_a_clean_process) {
  Supervised gateway({.environment = {{"ISOGATE_TEST_SECRET", "hunter2"}}});
  for (int number : {1, 2}) {
    const Json started = gateway.line("started", number);
    EXPECT_EQ(started["descriptors"], Json({0, 1, 2, 3}));
    EXPECT_EQ(started["session_leader"], true);
    EXPECT_EQ(started["term_blocked"], false);
    EXPECT_EQ(started["pipe_ignored"], false);
    EXPECT_EQ(started["environment"].dump().find("hunter2"), std::string::npos);
    EXPECT_LE(started["environment"].size(), 7u);
  }
}

TEST_F(Lifecycle, the_front_gets_only_the_hash_of_the_local_key) {
  Supervised gateway;
  const Json start = gateway.line("front got start")["message"];
  gateway.told_front("one", "up");
  std::string key = read_whole(gateway.state_dir() + "/local.key");
  key.pop_back();
  EXPECT_EQ(start["local_key_sha256"], sha256_hex(key));
  EXPECT_EQ(gateway.log().find(key), std::string::npos);
}

TEST_F(Lifecycle, configured_keys_take_the_place_of_the_local_one) {
  Supervised gateway({.change = [](Config& config) {
    config.keys = {{"ci", "acme", std::string(64, 'a')}};
  }});
  EXPECT_EQ(gateway.line("front got start")["message"]["local_key_sha256"], "");
  EXPECT_NE(::access((gateway.state_dir() + "/local.key").c_str(), F_OK), 0);
}

TEST_F(Lifecycle, a_crashed_host_is_back_in_two_seconds_with_a_new_generation) {
  Supervised gateway({.backends = {backend("one"), backend("two")}});
  gateway.told_front("one", "up");
  gateway.told_front("two", "up");
  const auto killed = Clock::now();
  ::kill(gateway.host_pid("one"), SIGSEGV);
  const Json down = gateway.told_front("one", "down");
  EXPECT_EQ(down["generation"], 1);
  EXPECT_EQ(down["reason"], "backend host crashed: signal 11 (SIGSEGV)");
  EXPECT_EQ(down["restarting"], true);
  EXPECT_EQ(down["quarantined"], false);
  EXPECT_EQ(gateway.told_front("one", "up", 2)["generation"], 2);
  EXPECT_LT(since(killed), 10.0);
  EXPECT_LE(gateway.line("backend_down").value("restart_in_ms", INT_MAX), 1600);
  EXPECT_EQ(gateway.line("front got backend", 4)["fds"], 1);
  EXPECT_TRUE(runs(gateway.host_pid("two")));
  EXPECT_EQ(gateway.count("front_started"), 1);
}

TEST_F(Lifecycle, a_host_that_its_alarm_ends_has_not_crashed) {
  Supervised gateway;
  gateway.told_front("one", "up");
  ::kill(gateway.host_pid("one"), SIGALRM);
  EXPECT_EQ(
      gateway.told_front("one", "down")["reason"],
      "backend host was ended by SIGALRM: its plugin did not return from destroy() within 30 s, or set an "
      "alarm of its own");
}

TEST_F(Lifecycle, five_crashes_are_a_quarantine) {
  Supervised gateway({.backends = {backend("one", "crash"), backend("two")}});
  const Json last = gateway.told_front("one", "down", 5);
  EXPECT_EQ(last["quarantined"], true);
  EXPECT_EQ(last["restarting"], false);
  EXPECT_EQ(last["generation"], 5);
  EXPECT_NE(std::string(last["reason"]).find("SIGABRT"), std::string::npos);
  gateway.told_front("two", "up");
  ::usleep(1'000'000);
  EXPECT_EQ(gateway.count("backend_quarantined"), 1);
  EXPECT_EQ(children_of(gateway.pid()).size(), 2u) << "the front and backend two";
}

// So far apart that no two of them are crashes in a minute.
TEST_F(Lifecycle, five_hosts_that_never_answered_a_probe_are_a_quarantine_until_a_reload) {
  const auto apart = [](ServeOptions& options) {
    options.timings.leave = std::chrono::milliseconds(20);
    options.timings.crash_window = std::chrono::milliseconds(1);
  };
  Supervised probed({.instance = "gives-up-probed", .change_options = apart});
  Supervised gateway({.instance = "gives-up-unprobed", .change_options = apart});
  const Json last = gateway.told_front("one", "down", 5);
  EXPECT_EQ(last["quarantined"], true) << last;
  EXPECT_EQ(last["generation"], 5);
  const Json line = gateway.line("backend_quarantined");
  EXPECT_EQ(line["level"], "error");
  EXPECT_NE(line["reason"].get<std::string>().find("given up by the front: it hangs"), std::string::npos);
  gateway.reload([](Config&) {});
  EXPECT_EQ(gateway.told_front("one", "up", 6)["generation"], 6);
  probed.told_front("one", "up", 8);
  EXPECT_EQ(probed.count("backend_quarantined"), 0);
}

TEST_F(Lifecycle, a_backend_that_is_not_installed_is_one_line_and_no_error) {
  BackendConfig absent = backend("one", "serve");
  absent.plugin = "absent";
  Supervised gateway({.backends = {absent, backend("two")}});
  const Json down = gateway.told_front("one", "down");
  EXPECT_NE(std::string(down["reason"]).find("plugin `absent` is not installed"), std::string::npos);
  EXPECT_EQ(down["restarting"], false);
  EXPECT_EQ(down["quarantined"], false);
  gateway.told_front("two", "up");
  EXPECT_EQ(gateway.line("backend_not_installed")["level"], "warn") << "another backend follows it";
  EXPECT_EQ(gateway.line("backend_not_installed")["next"], "two");
  EXPECT_EQ(gateway.count("backend_not_installed"), 1);
  EXPECT_EQ(gateway.count("backend_failed"), 0);
  EXPECT_EQ(children_of(gateway.pid()).size(), 2u) << "the front and backend two";
}

TEST_F(Lifecycle, a_failure_is_final_and_says_why) {
  Supervised gateway({.backends = {backend("one", "failed"), backend("two")}});
  const Json down = gateway.told_front("one", "down");
  EXPECT_EQ(down["reason"], "plugin `x` is absent");
  EXPECT_EQ(down["restarting"], false);
  EXPECT_EQ(down["quarantined"], false);
  EXPECT_EQ(gateway.line("backend_failed")["reason"], "plugin `x` is absent");
  gateway.told_front("two", "up");
  ::usleep(500'000);
  EXPECT_EQ(gateway.count("backend_host_started"), 2);
}

TEST_F(Lifecycle, a_backend_whose_configuration_is_wrong_keeps_the_gateway_from_starting) {
  Supervised gateway({.backends = {backend("one"), backend("two", "mistaken")}});
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_EQ(gateway.line("start_failed")["reason"], "`backends[1].config`: `procs` is unknown");
  EXPECT_EQ(gateway.count("front_started"), 0) << "the front was started";
}

TEST_F(Lifecycle, a_name_much_like_a_plugin_is_a_mistake) {
  BackendConfig mistyped = backend("one");
  mistyped.plugin = "namespce";
  Supervised gateway({.backends = {mistyped, backend("two")}, .change = [](Config& config) {
                        std::ofstream(config.plugin_dir + "/namespace.so") << "there";
                      }});
  EXPECT_EQ(gateway.wait(), 1);
  const std::string reason = gateway.line("start_failed")["reason"];
  EXPECT_NE(reason.find("`backends[0].plugin`: plugin `namespce` is not installed"), std::string::npos);
  EXPECT_NE(reason.find("did you mean `namespace`?"), std::string::npos) << reason;
  EXPECT_EQ(gateway.count("front_started"), 0);
}

TEST_F(Lifecycle, a_backend_that_takes_long_holds_up_the_others_for_a_while_only) {
  Supervised gateway({.backends = {backend("one", "never-ready"), backend("two")},
                      .change_options = [](ServeOptions& options) {
                        options.timings.first_hosts = std::chrono::milliseconds(300);
                      }});
  gateway.told_front("two", "up");
  EXPECT_EQ(gateway.count("backend_down"), 0);
}

TEST_F(Lifecycle, exit_code_3_without_a_word_is_a_crash) {
  Supervised gateway({.backends = {backend("one", "exit3")}});
  const Json down = gateway.told_front("one", "down");
  EXPECT_EQ(down["reason"], "backend host crashed: exit code 3");
  EXPECT_EQ(down["restarting"], true);
}

TEST_F(Lifecycle, a_host_that_never_becomes_ready_is_killed) {
  Supervised gateway(
      {.backends = {backend("one", "never-ready")}, .change_options = [](ServeOptions& options) {
         options.timings.ready = std::chrono::milliseconds(700);
       }});
  const pid_t pid = gateway.host_pid("one");
  const Json down = gateway.told_front("one", "down");
  EXPECT_EQ(down["reason"], "backend host was killed: it did not become ready within 700 ms");
  EXPECT_EQ(down["restarting"], true);
  EXPECT_FALSE(runs(pid));
}

TEST_F(Lifecycle, a_host_that_speaks_nonsense_is_killed) {
  Supervised gateway({.backends = {backend("one", "garbage")}});
  const pid_t pid = gateway.host_pid("one");
  EXPECT_NE(std::string(gateway.told_front("one", "down")["reason"]).find("unknown type `hello`"),
            std::string::npos);
  EXPECT_FALSE(runs(pid));
}

TEST_F(Lifecycle, a_host_that_restarts_again_and_again_is_quarantined_and_delays_nobody) {
  Supervised gateway({.backends = {backend("one", "ready-for-ever"), backend("two")}});
  gateway.told_front("two", "up");
  const Json down = gateway.told_front("one", "down");
  EXPECT_NE(std::string(down["reason"]).find("sent `ready` out of turn"), std::string::npos) << down;
  gateway.line("backend_quarantined");
  EXPECT_EQ(gateway.count("backend_down"), 4) << "and no other host ended";
}

TEST_F(Lifecycle, a_front_that_breaks_the_protocol_is_killed) {
  for (const auto& [act, why] :
       {std::pair{"ready-twice", "sent `ready` twice"}, {"flood", "sends records too fast"}}) {
    Supervised gateway({.instance = act});
    EXPECT_NE(std::string(gateway.line("front_killed")["reason"]).find(why), std::string::npos);
    gateway.line("front_started", 2);
  }
}

TEST_F(Lifecycle, a_crashed_front_is_back_in_two_seconds_and_so_are_the_hosts) {
  Supervised gateway({.backends = {backend("one"), backend("two", "failed")}});
  gateway.told_front("one", "up");
  gateway.told_front("two", "down");
  const std::string listen = gateway.line("ready")["listen"];
  const pid_t old_host = gateway.host_pid("one");
  const auto killed = Clock::now();
  ::kill(gateway.front_pid(), SIGKILL);
  gateway.line("ready", 2);
  EXPECT_LE(gateway.line("front_crashed").value("restart_in_ms", INT_MAX), 1600);
  EXPECT_EQ(gateway.told_front("one", "up", 2)["generation"], 2);
  EXPECT_LT(since(killed), 10.0);
  EXPECT_EQ(gateway.told_front("two", "down", 2)["reason"], "plugin `x` is absent")
      << "a new front gets the known state";
  EXPECT_FALSE(runs(old_host));
  EXPECT_EQ(gateway.count("backend_down"), 0) << "an end that follows the front's is no crash";
  EXPECT_EQ(gateway.line("ready", 2)["listen"], listen);
}

TEST_F(Lifecycle, clients_queue_while_the_front_is_away) {
  Supervised gateway;
  const std::string listen = gateway.line("ready")["listen"];
  const std::string address = listen.substr(0, listen.find(' '));
  for (int i = 0; i < 3; ++i) {
    ::kill(gateway.front_pid(i + 1), SIGKILL);
    EXPECT_NO_THROW(HttpConnection("http://" + address));
    gateway.line("ready", i + 2);
  }
}

TEST_F(Lifecycle, a_host_that_survives_its_front_is_killed) {
  Supervised gateway({.backends = {backend("one", "linger")}, .change_options = [](ServeOptions& options) {
                        options.timings.leave = std::chrono::milliseconds(500);
                      }});
  gateway.told_front("one", "up");
  const pid_t host = gateway.host_pid("one");
  ::kill(gateway.front_pid(), SIGKILL);
  EXPECT_TRUE(gone_within(host, 3));
  EXPECT_EQ(gateway.told_front("one", "up", 2)["generation"], 2);
}

TEST_F(Lifecycle, a_front_that_cannot_start_ends_it_with_the_reason) {
  Supervised gateway({.instance = "fatal"});
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_EQ(gateway.line("gave_up")["reason"], "the database is locked");
  EXPECT_EQ(gateway.count("front_started"), 1);
}

TEST_F(Lifecycle, a_front_that_crashes_before_it_is_ready_is_tried_five_times) {
  Supervised gateway({.instance = "crash"});
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_EQ(gateway.count("front_started"), 5);
  EXPECT_NE(std::string(gateway.line("gave_up")["reason"]).find("SIGABRT"), std::string::npos);
}

TEST_F(Lifecycle, a_front_that_never_becomes_ready_is_killed) {
  Supervised gateway({.instance = "never-ready", .change_options = [](ServeOptions& options) {
                        options.timings.ready = std::chrono::milliseconds(400);
                        options.timings.crash_limit = 2;
                      }});
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_NE(std::string(gateway.line("gave_up")["reason"]).find("did not become ready in time"),
            std::string::npos);
}

// poll(2) refuses more descriptors than the process may have.
TEST_F(Lifecycle, without_a_way_to_wait_for_events_it_gives_up_once_and_stops) {
  Supervised gateway;
  gateway.told_front("one", "up");
  rlimit files{};
  ASSERT_EQ(::prlimit(gateway.pid(), RLIMIT_NOFILE, nullptr, &files), 0);
  files.rlim_cur = 1;
  ASSERT_EQ(::prlimit(gateway.pid(), RLIMIT_NOFILE, &files, nullptr), 0);
  gateway.signal(SIGUSR1);  // ends the wait that has begun
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_EQ(gateway.count("gave_up"), 1);
  EXPECT_EQ(gateway.count("host got stop"), 1);
  EXPECT_EQ(gateway.count("front sees the end"), 1);
}

TEST_F(Lifecycle, the_loader_environment_is_refused) {
  Supervised gateway({.environment = {{"LD_BIND_NOW", "1"}}});
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_NE(std::string(gateway.line("start_failed")["reason"]).find("LD_BIND_NOW"), std::string::npos);
  EXPECT_EQ(gateway.count("front_started"), 0);
}

TEST_F(Lifecycle, beyond_loopback_without_keys_does_not_start) {
  Supervised gateway({.change = [](Config& config) { config.listen = {"0.0.0.0:0"}; }});
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_NE(std::string(gateway.line("start_failed")["reason"]).find("`keys`"), std::string::npos);
}

TEST_F(Lifecycle, two_gateways_never_share_a_state_directory) {
  Supervised first;
  first.line("ready");
  Supervised second({.state_dir = first.state_dir()});
  EXPECT_EQ(second.wait(), 1);
  EXPECT_NE(std::string(second.line("start_failed")["reason"]).find("pid " + std::to_string(first.pid())),
            std::string::npos);
  EXPECT_EQ(::access((first.state_dir() + "/isogate.sock").c_str(), F_OK), 0)
      << "the socket of the first is gone";
}

TEST_F(Lifecycle, no_zombie_and_no_descriptor_is_left_by_crashes) {
  if (::geteuid() != 0) GTEST_SKIP() << "an undumpable process shows its descriptors only to root";
  Supervised gateway({.change_options = [](ServeOptions& options) { options.timings.crash_limit = 100; }});
  gateway.told_front("one", "up");
  const auto descriptors = [&] {
    return run_program({"/bin/sh", "-c", "ls /proc/" + std::to_string(gateway.pid()) + "/fd | wc -l"}).out;
  };
  const std::string before = descriptors();
  for (int round = 1; round <= 4; ++round) {
    ::kill(gateway.host_pid("one", round), SIGKILL);
    gateway.told_front("one", "up", round + 1);
  }
  ::kill(gateway.front_pid(), SIGKILL);
  gateway.told_front("one", "up", 6);
  EXPECT_EQ(descriptors(), before);
  for (const pid_t child : children_of(gateway.pid())) EXPECT_TRUE(runs(child)) << "a zombie";
  EXPECT_EQ(children_of(gateway.pid()).size(), 2u);
  EXPECT_EQ(run_program({"/bin/ls", gateway.state_dir() + "/run"}).out, "one.6\n");
}

TEST_F(Lifecycle, with_a_log_file_the_children_write_there_too) {
  TemporaryDirectory logs;
  const std::string path = logs.path() + "/isogate.log";
  Supervised gateway({.change = [&](Config& config) { config.log.file = path; }});
  const auto wait_for = [](const std::string& file, const std::string& text) {
    for (int i = 0; i < 500; ++i, ::usleep(20'000))
      if (read_whole(file).find(text) != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(wait_for(path, "\"front got backend\""));
  ASSERT_EQ(::rename(path.c_str(), (path + ".1").c_str()), 0);
  gateway.signal(SIGUSR1);
  for (int i = 0; i < 500 && ::access(path.c_str(), F_OK) != 0; ++i) ::usleep(20'000);
  gateway.signal(SIGTERM);
  EXPECT_EQ(gateway.wait(), 0);
  EXPECT_NE(read_whole(path).find("\"log_reopened\""), std::string::npos);
  EXPECT_NE(read_whole(path).find("front got drain"), std::string::npos);
  EXPECT_NE(read_whole(path).find("\"stopped\""), std::string::npos);
}

TEST_F(Lifecycle, a_fifo_as_log_file_ends_the_start) {
  TemporaryDirectory logs;
  const std::string path = logs.path() + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  Supervised gateway({.change = [&](Config& config) { config.log.file = path; }});
  EXPECT_EQ(gateway.wait(), 1);
  EXPECT_NE(gateway.log().find("not a regular file"), std::string::npos) << gateway.log();
}

TEST_F(Lifecycle, tells_the_service_manager) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/notify";
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const timeval limit{10, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const auto next = [&] {
    char text[128];
    const ssize_t n = ::recv(socket.get(), text, sizeof text, 0);
    return std::string(text, n > 0 ? static_cast<size_t>(n) : 0);
  };
  Supervised gateway({.environment = {{"NOTIFY_SOCKET", path}}});
  EXPECT_EQ(next(), "READY=1");
  gateway.signal(SIGHUP);
  EXPECT_TRUE(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_EQ(next(), "READY=1");
  gateway.signal(SIGTERM);
  EXPECT_EQ(next(), "STOPPING=1");
}

}  // namespace
}  // namespace isogate::test
