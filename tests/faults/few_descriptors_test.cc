#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/eventually.h"
#include "tests/faults/faults.h"

// A gateway that may open few files: each tenant has its share of the sandboxes that fit.
namespace isogate::test {
namespace {

constexpr uid_t kSomebody = 65534;

// In a separate process: on some machines not even root can raise the limit again.
void expect_apart(void (*check)()) {
  EXPECT_EXIT(
      {
        check();
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

void expect_room_for_another_tenant() {
  const std::string yaml = kLocal + keys_yaml("ab");
  const rlimit few{1024, 1024};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto gateway = std::make_unique<Gateway>(GatewayOptions{.yaml = yaml, .run_as = kSomebody});
  const auto of = [&](char tenant, int agent) {
    return Caller(gateway->url(), tenant_key(tenant), tenant + std::to_string(agent));
  };
  const auto opened = [&](char tenant) {
    int count = 0;
    for (Answer answer; count < 500; ++count) {
      answer = of(tenant, count).exec("true");
      if (answer.status == 200) continue;
      EXPECT_TRUE(refused(answer, 507, "quota_exceeded"));
      EXPECT_NE(answer.text.find("sandboxes of this tenant are open"), std::string::npos) << answer.text;
      break;
    }
    return count;
  };
  const int mine = opened('a');
  EXPECT_GE(mine, 10);
  EXPECT_LT(mine, 500);
  EXPECT_EQ(opened('b'), mine) << "another tenant gets as many";
  for (const char tenant : {'a', 'b'}) EXPECT_EQ(of(tenant, 0).out("echo works"), "works\n");
  EXPECT_TRUE(succeeded(of('a', 1).call("DELETE", "/sandboxes/a1")));
  EXPECT_EQ(of('a', mine).out("echo works"), "works\n");
}

TEST(FewDescriptors, OneTenantsSandboxesLeaveRoomForAnothers) {
  if (!is_root()) GTEST_SKIP() << "needs root, to start the gateway as another user";
  expect_apart(expect_room_for_another_tenant);
}

// One of namespaces keeps the most: its namespaces, an init that waits, and its cgroups.
void expect_sandboxes_to_fit() {
  constexpr size_t kAll = 1024, kOwn = 64;
  const rlimit few{kAll, kAll};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto gateway = start("backends: [{name: namespace}]\n");
  const pid_t host = host_of(*gateway, "namespace");
  EXPECT_EQ(Caller(*gateway, "first").exec("true").status, 200);
  EXPECT_TRUE(succeeded(Caller(*gateway, "first").call("DELETE", "/sandboxes/first")));
  const size_t before = open_files(host).size();
  size_t count = 0;
  for (Answer answer; count < 100; ++count) {
    const Caller caller(*gateway, "a" + std::to_string(count));
    answer = caller.exec("true");
    if (answer.status != 200) {
      EXPECT_TRUE(refused(answer, 507, "quota_exceeded"));
      break;
    }
    std::thread beside([&] { EXPECT_EQ(caller.exec("sleep 0.2").status, 200); });
    EXPECT_EQ(caller.exec("sleep 0.2").status, 200);
    beside.join();
  }
  EXPECT_GE(count, 10U);
  EXPECT_TRUE(eventually(10, [&] { return open_files(host).size() <= before + (kAll - kOwn) / 4; }))
      << open_files(host).size() - before << " for " << count << " sandboxes";
}

TEST(FewDescriptors, WhatSandboxesKeepLeavesRoomForCalls) {
  if (!is_root()) GTEST_SKIP() << "needs root, for a cgroup of each sandbox";
  SKIP_UNLESS_STARTABLE();
  expect_apart(expect_sandboxes_to_fit);
}

// What one tenant's long-lived execs hold once they have ended, and while they wait in the queue.
void expect_long_execs_to_leave_descriptors() {
  constexpr size_t kAll = 1024, kFilesOfOne = kAll / 32 / 2, kWaiting = 150;
  const std::string yaml = std::string(kLocal) +
                           "limits: {max_execs_per_sandbox: 1, exec_queue_timeout_sec: 600}\n" +
                           keys_yaml("ab");
  const rlimit few{kAll, kAll};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto gateway = std::make_unique<Gateway>(GatewayOptions{.yaml = yaml, .run_as = kSomebody});
  const pid_t front = front_of(*gateway);
  const Caller mine(gateway->url(), tenant_key('a'), "a"), others(gateway->url(), tenant_key('b'), "b");
  const auto expect_others_to_work = [&] {
    for (const std::string& url : {gateway->url(), gateway->unix_url()})
      EXPECT_EQ(HttpConnection(url, 10).request("GET", "/livez").status, 200) << url;
    EXPECT_EQ(others.out("echo works"), "works\n");
  };

  Answer ended;
  for (int i = 0; i < 30; ++i) {
    ended = mine.exec("echo hello; echo hello >&2", {{"wait_sec", 60}, {"max_output_bytes", 1}});
    ASSERT_EQ(ended.status, 200) << ended.text;
  }
  const auto files = [&] {
    size_t count = 0;
    for (const auto& [fd, what] : open_files(front)) count += what.ends_with("output.tmp (deleted)") ? 1 : 0;
    return count;
  };
  EXPECT_TRUE(eventually(10, [&] { return files() <= kFilesOfOne; })) << files();
  const std::string output = mine.get("/execs/" + ended.body.value("exec_id", "") + "/output").text;
  for (const char* stream : {"stdout", "stderr"})
    EXPECT_NE(output.find("\"" + std::string(stream) + R"(","offset":0,"data":"hello\n")"), std::string::npos)
        << output;
  expect_others_to_work();

  ASSERT_EQ(mine.exec("sleep 600", {{"background", true}}).status, 202);
  const std::string body = R"({"agent_id":"a","command":"true","background":true,"stdin_open":true})";
  Headers headers = mine.headers();
  headers.emplace_back("Content-Length", std::to_string(body.size()));
  std::vector<std::unique_ptr<HttpConnection>> waiting;
  for (size_t i = 0; i < kWaiting; ++i) {
    waiting.push_back(std::make_unique<HttpConnection>(gateway->url(), 10));
    waiting.back()->send_request_head("POST", "/exec", headers);
    waiting.back()->send(body);
  }
  const std::string count = "what=\"execs_waiting\"} " + std::to_string(kWaiting) + "\n";
  EXPECT_TRUE(eventually(10, [&] {
    const HttpResponse metrics =
        HttpConnection(gateway->url(), 10).request("GET", "/metrics", others.headers());
    return metrics.body.find(count) != std::string::npos;
  }));
  EXPECT_LE(open_files(front).size(), kAll / 2);
  expect_others_to_work();
}

TEST(FewDescriptors, LongExecsThatHaveEndedOrWaitLeaveSomeToAll) {
  if (!is_root()) GTEST_SKIP() << "needs root, to start the gateway as another user";
  expect_apart(expect_long_execs_to_leave_descriptors);
}

void expect_a_refusal_to_start() {
  const rlimit few{256, 256};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string said;
  try {
    Gateway(
        GatewayOptions{.yaml = "allow_unisolated: true\nbackends: [{name: local}]\n", .run_as = kSomebody});
  } catch (const std::exception& error) {
    said = error.what();
  }
  EXPECT_NE(said.find("RLIMIT_NOFILE is 256"), std::string::npos) << said;
  EXPECT_NE(said.find("640 at least"), std::string::npos) << said;
}

TEST(FewDescriptors, TooFewForTwoTenantsAreNoStart) {
  if (!is_root()) GTEST_SKIP() << "needs root, to start the gateway as another user";
  expect_apart(expect_a_refusal_to_start);
}

// The soft limit, set by a process of the front's user: on some machines root may not.
void limit_open_files(pid_t pid, rlim_t most) {
  const auto uid = static_cast<uid_t>(std::stoul(status_field(pid, "Uid")));
  const auto gid = static_cast<gid_t>(std::stoul(status_field(pid, "Gid")));
  const pid_t helper = ::fork();
  if (helper == 0) {
    rlimit limit{};
    const bool is_set = ::setresgid(gid, gid, gid) == 0 && ::setresuid(uid, uid, uid) == 0 &&
                        ::prlimit(pid, RLIMIT_NOFILE, nullptr, &limit) == 0;
    limit.rlim_cur = std::min(most, limit.rlim_max);
    ::_exit(is_set && ::prlimit(pid, RLIMIT_NOFILE, &limit, nullptr) == 0 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(helper, &status, 0), helper);
  EXPECT_EQ(status, 0) << "the limit of process " << pid << " cannot be set";
}

rlim_t lowest_free_descriptor(pid_t pid) {
  std::set<int> open;
  for (const auto& [fd, path] : open_files(pid)) open.insert(fd);
  int lowest = 0;
  while (open.contains(lowest)) ++lowest;
  return static_cast<rlim_t>(lowest);
}

// So many keys that the configuration travels in a memfd.
std::string yaml_with_keys(const std::string& names, int max_execs) {
  std::string yaml =
      std::string(kLocal) + "limits: {max_execs: " + std::to_string(max_execs) + "}\n" + keys_yaml(names);
  for (int i = 0; i < 700; ++i) {
    const std::string name = "other" + std::to_string(i);
    yaml += "  - {name: " + name + ", tenant: " + name + ", sha256: " + sha256_hex("key of " + name) + "}\n";
  }
  return yaml;
}

size_t count_of(const Gateway& gateway, const std::string& event) {
  const std::string log = gateway.log(), text = "\"event\":\"" + event + "\"";
  size_t count = 0;
  for (size_t at = 0; (at = log.find(text, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(FewDescriptors, AFrontWithoutAnyTakesAReloadAndNewHosts) {
  SKIP_UNLESS_STARTABLE();
  const auto gateway = start(yaml_with_keys("ab", 60));
  const Caller kept(gateway->url(), tenant_key('a'), "mine");
  const Caller revoked(gateway->url(), tenant_key('b'), "mine");
  EXPECT_EQ(kept.out("echo works"), "works\n");
  HttpConnection connection(gateway->url());
  EXPECT_EQ(connection.request("GET", "/sandboxes", revoked.headers()).status, 200);
  const pid_t front = front_of(*gateway);
  limit_open_files(front, lowest_free_descriptor(front));
  std::vector<HttpConnection> waiting;  // each takes a descriptor that becomes free
  for (int i = 0; i < 16; ++i) waiting.emplace_back(gateway->url());
  EXPECT_TRUE(eventually(10, [&] { return count_of(*gateway, "accept_paused") > 0; })) << gateway->log();
  for (const int max_execs : {61, 62}) {
    const pid_t host = host_of(*gateway, "local");
    gateway->reload(yaml_with_keys("a", max_execs));
    EXPECT_EQ(connection.request("GET", "/sandboxes", revoked.headers()).status, 401);
    EXPECT_TRUE(eventually(10, [&] { return !alive(host); })) << "the backend host is not replaced";
  }
  ASSERT_EQ(::kill(host_of(*gateway, "local"), SIGKILL), 0);
  EXPECT_TRUE(eventually(10, [&] { return count_of(*gateway, "backend_up") == 4; })) << gateway->log();
  EXPECT_EQ(connection.request("GET", "/sandboxes", kept.headers()).status, 200);
  limit_open_files(front, RLIM_INFINITY);
  gateway->reload(yaml_with_keys("a", 62));  // the limit of connections follows that of open files
  EXPECT_TRUE(works_within(10, kept));
  EXPECT_EQ(revoked.get("/sandboxes").status, 401);
  EXPECT_EQ(front_of(*gateway), front);
  EXPECT_EQ(count_of(*gateway, "backend_host_started"), 4U) << gateway->log();
  EXPECT_EQ(count_of(*gateway, "backend_quarantined"), 0U);
}

TEST(FewDescriptors, AFrontThatLosesARecordIsReplacedByOneWithTheNewConfiguration) {
  SKIP_UNLESS_STARTABLE();
  const auto gateway = start(yaml_with_keys("ab", 60));
  const Caller kept(gateway->url(), tenant_key('a'), "mine");
  const Caller revoked(gateway->url(), tenant_key('b'), "mine");
  EXPECT_EQ(revoked.get("/sandboxes").status, 200);
  const pid_t front = front_of(*gateway);
  limit_open_files(front, 3);  // its reserve is above
  gateway->reload(yaml_with_keys("a", 60));
  EXPECT_TRUE(works_within(10, kept));
  EXPECT_EQ(revoked.get("/sandboxes").status, 401);
  EXPECT_NE(front_of(*gateway), front);
  EXPECT_EQ(count_of(*gateway, "control_record_lost"), 1U) << gateway->log();
  EXPECT_EQ(count_of(*gateway, "backend_down"), 0U) << gateway->log();
}

}  // namespace
}  // namespace isogate::test
