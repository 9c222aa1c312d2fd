#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "tests/processes/accounting.h"
#include "tests/support/api.h"
#include "tests/support/processes.h"
#include "tests_dirs.h"

// The promise of REQUIRE_REMOTE, checked with the kernel's own records: nothing ever runs on this host.
namespace isogate::test {
namespace {

struct Call {
  const char *method, *path, *body;
};
const Call kCalls[] = {{"POST", "/exec", R"({"agent_id":"a","command":"touch ran"})"},
                       {"POST", "/exec", R"({"agent_id":"a","argv":["/bin/true"]})"},
                       {"POST", "/exec", R"({"agent_id":"a","command":"true","backend":"local"})"},
                       {"POST", "/exec", R"({"agent_id":"a","command":"true","backend":"here"})"},
                       {"POST", "/exec", R"({"agent_id":"a","command":"true","min_isolation":"none"})"},
                       {"POST", "/exec", R"({"agent_id":"a","command":"true","artifact_dir":"."})"},
                       {"POST", "/exec-stream", R"({"agent_id":"a","command":"true"})"},
                       {"POST", "/workspace/read", R"({"agent_id":"a","path":"x"})"},
                       {"POST", "/workspace/write", R"({"agent_id":"a","path":"x","content":"y"})"},
                       {"POST", "/workspace/list", R"({"agent_id":"a","path":"."})"},
                       {"POST", "/workspace/stat", R"({"agent_id":"a","path":"."})"},
                       {"POST", "/workspace/mkdir", R"({"agent_id":"a","path":"d"})"},
                       {"POST", "/workspace/move", R"({"agent_id":"a","path":"x","to":"y"})"},
                       {"POST", "/workspace/remove", R"({"agent_id":"a","path":"x"})"},
                       {"GET", "/workspace/files/a/x", ""},
                       {"PUT", "/workspace/files/a/x", "y"},
                       {"DELETE", "/workspace/files/a/x", ""}};

// `here` runs on this host, and is up and probed all the time. docker finds no Engine.
std::string yaml() {
  return "probe_interval_sec: 1\nbackends:\n  - name: docker\n    config: {host: "
         "\"unix:///nonexistent/docker.sock\"}\n  - name: k8s\n    plugin: no-such-plugin\n  - name: local\n"
         "  - name: here\n    plugin: " ISOGATE_BUILD_DIR "/test_plugins/faulty.so\n";
}

void expect_refused(const Answer& answer, const char* what) {
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable")) << what;
  // An Engine may appear; naming a backend of this host stays an error.
  const bool named = answer.text.find("the request names backend") != std::string::npos;
  EXPECT_EQ(answer.header("Retry-After"), named ? "" : "5") << what << answer.text;
  EXPECT_EQ(answer.body.value("/error/retryable"_json_pointer, named), !named) << what;
  std::set<std::string> tried;
  for (const Json& each : answer.body.value("/error/details/tried"_json_pointer, Json::array()))
    if (!each.at("reason").get<std::string>().empty()) tried.insert(each.at("backend"));
  EXPECT_EQ(tried, (std::set<std::string>{"docker", "k8s", "local", "here"})) << what << ": " << answer.text;
}

class RequireRemote : public testing::Test {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  }
  static GatewayOptions remote() { return {.yaml = "require_remote: true\n" + yaml(), .wait_ready = false}; }
  // Every backend has its verdict.
  static bool settled(const Caller& caller) {
    return eventually(30, [&] {
      const Answer answer = caller.get("/backends");
      for (const Json& row : answer.body.at("backends"))
        if (row.at("verdict") == "starting") return false;
      return answer.body.at("backends").size() == 4;
    });
  }
  static void expect_nothing_served(const Gateway& gateway, int calls) {
    const Caller me(gateway, "a");
    for (int i = 0; i < calls; ++i) {
      const Call& call = kCalls[static_cast<size_t>(i) % std::size(kCalls)];
      expect_refused(me.call(call.method, call.path, {{"Content-Type", "application/json"}}, call.body),
                     call.path);
    }
    expect_refused(me.get("/readyz"), "/readyz");
    EXPECT_EQ(me.call("HEAD", "/workspace/files/a/x").status, 503);
    EXPECT_EQ(me.get("/livez").status, 200);
    EXPECT_EQ(me.get("/healthz").status, 200);
    EXPECT_EQ(me.get("/sandboxes").body.at("sandboxes"), Json::array());
  }
};

// Once it is up: not a single process, whatever is called and however often backends are probed.
TEST_F(RequireRemote, NothingIsSpawnedByProcessAccounting) {
  Gateway gateway(remote());
  const Caller me(gateway, "");
  ASSERT_TRUE(settled(me)) << me.get("/backends").text;
  ASSERT_GT(host_of(gateway, "here"), 0) << "no backend is probed: " << me.get("/backends").text;
  const std::vector<pid_t> start = descendants_of(gateway.pid());
  std::set<pid_t> ours(start.begin(), start.end());
  ours.insert(gateway.pid());
  Accounting accounting;
  if (!accounting.obstacle().empty()) GTEST_SKIP() << accounting.obstacle();
  // The control: the records would show it.
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);

  const auto from = std::chrono::steady_clock::now();
  expect_nothing_served(gateway, 200);
  const auto probed_thrice = [&] {
    return std::chrono::steady_clock::now() - from > std::chrono::milliseconds(3500);
  };
  EXPECT_TRUE(eventually(10, probed_thrice));
  expect_nothing_served(gateway, 17);
  EXPECT_EQ(descendants_of(gateway.pid()), start) << "a process started or ended";
  std::set<pid_t> seen;
  for (const EndedProcess& each : accounting.stop()) {
    seen.insert(each.pid);
    EXPECT_EQ(ours.count(each.parent), 0u) << "`" << each.command << "` was run by process " << each.parent;
  }
  EXPECT_EQ(seen.count(child), 1u) << "the accounting does not show what ended";
}

// From the start on, only the gateway's own processes.
TEST_F(RequireRemote, NoOtherProgramEverRuns) {
  Accounting accounting;
  if (!accounting.obstacle().empty()) GTEST_SKIP() << accounting.obstacle();
  std::set<pid_t> ours;
  {
    Gateway gateway(remote());
    ASSERT_TRUE(settled(Caller(gateway, "")));
    for (const pid_t pid : descendants_of(gateway.pid())) ours.insert(pid);
    ours.insert(gateway.pid());
    expect_nothing_served(gateway, 17);
  }
  for (const EndedProcess& each : accounting.stop()) {
    if (ours.count(each.parent) == 0) continue;
    const bool own = each.command == "isogate" || each.command == "exe" || each.command == "front" ||
                     each.command.rfind("host:", 0) == 0;
    EXPECT_TRUE(own) << "`" << each.command << "` was run by process " << each.parent;
  }
}

TEST_F(RequireRemote, TheEnvironmentVariableDoesTheSame) {
  GatewayOptions options;
  options.yaml = yaml();
  options.env = {{"REQUIRE_REMOTE", "true"}};
  options.wait_ready = false;
  Gateway gateway(options);
  ASSERT_TRUE(settled(Caller(gateway, "")));
  expect_nothing_served(gateway, 17);
  EXPECT_EQ(Caller(gateway, "").get("/backends").body.at("policy").at("require_remote"), true);
}

TEST_F(RequireRemote, NoMessageProposesWhatItForbids) {
  Gateway gateway(remote());
  ASSERT_TRUE(settled(Caller(gateway, "")));
  const std::string text = Caller(gateway, "").get("/backends").text;
  EXPECT_NE(text.find("can never serve under require_remote"), std::string::npos) << text;
  EXPECT_EQ(text.find("write allow_unisolated"), std::string::npos) << text;
}

TEST_F(RequireRemote, AGatewayThatCanServeNobodyWarnsUntilItCan) {
  const std::string local = "allow_unisolated: true\nbackends: [{name: local}]\n";
  GatewayOptions options;
  options.yaml = "min_isolation: container\n" + local;
  options.wait_ready = false;
  Gateway gateway(options);
  const auto logs = [&](const std::string& event, size_t times) {
    const std::string log = gateway.log(), line = "\"event\":\"" + event + "\"";
    size_t found = 0;
    for (size_t at = log.find(line); at != std::string::npos; at = log.find(line, at + 1)) ++found;
    return found == times;
  };
  EXPECT_TRUE(eventually(30, [&] { return logs("no_backend_eligible", 1); })) << gateway.log();
  EXPECT_NE(gateway.log().find("below the container that min_isolation asks for"), std::string::npos);
  gateway.reload("fallback: never\nmin_isolation: container\n" + local);
  EXPECT_TRUE(eventually(30, [&] { return logs("no_backend_eligible", 2); })) << "after each reload";
  gateway.reload(local);
  EXPECT_TRUE(eventually(30, [&] { return Caller(gateway, "").get("/readyz").status == 200; }));
  EXPECT_TRUE(logs("no_backend_eligible", 2));
  EXPECT_TRUE(eventually(30, [&] { return logs("backend_eligible", 1); })) << gateway.log();
  gateway.stop();
  EXPECT_TRUE(logs("backend_down", 0)) << "an orderly stop is no outage: " << gateway.log();
}

TEST_F(RequireRemote, WhatTheFileTurnsOnNothingTurnsOff) {
  GatewayOptions options = remote();
  options.env = {{"REQUIRE_REMOTE", "false"}, {"ISOGATE_REQUIRE_REMOTE", "false"}};
  options.arguments = {"--require-remote=false"};
  try {
    Gateway gateway(options);
    ASSERT_TRUE(settled(Caller(gateway, "")));
    expect_nothing_served(gateway, 17);
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("require"), std::string::npos)
        << error.what();  // a refusal is fine, too
  }
}

TEST_F(RequireRemote, ItDoesNotGoWithRelaxations) {
  for (const char* relaxation : {"allow_unisolated: true\n", "anonymous: loopback\n"}) {
    GatewayOptions options;
    options.yaml = "require_remote: true\n" + std::string(relaxation) + yaml();
    options.wait_ready = false;
    try {
      Gateway gateway(options);
      ADD_FAILURE() << "it started with " << relaxation;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("require_remote"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace isogate::test
