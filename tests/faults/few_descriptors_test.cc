#include <sys/resource.h>

#include <thread>

#include "tests/eventually.h"
#include "tests/faults/faults.h"

// A gateway that may open few files: each tenant has its share of the sandboxes that fit.
namespace isogate::test {
namespace {

constexpr uid_t kSomebody = 65534;

void expect_room_for_another_tenant() {
  std::string yaml = "allow_unisolated: true\nbackends: [{name: local}]\nkeys:\n";
  for (const char name : {'a', 'b'})
    yaml += std::string("  - {name: ") + name + ", tenant: " + name +
            ", sha256: " + sha256_hex(std::string(64, name)) + "}\n";
  const rlimit few{1024, 1024};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto gateway = std::make_unique<Gateway>(GatewayOptions{.yaml = yaml, .run_as = kSomebody});
  const auto of = [&](char tenant, int agent) {
    return Caller(gateway->url(), std::string(64, tenant), tenant + std::to_string(agent));
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

// In a separate process: on some machines not even root can raise the limit again.
TEST(FewDescriptors, OneTenantsSandboxesLeaveRoomForAnothers) {
  if (!is_root()) GTEST_SKIP() << "needs root, to start the gateway as another user";
  EXPECT_EXIT(
      {
        expect_room_for_another_tenant();
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
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
  EXPECT_EXIT(
      {
        expect_sandboxes_to_fit();
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
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
  EXPECT_NE(said.find("512 at least"), std::string::npos) << said;
}

TEST(FewDescriptors, TooFewForTwoTenantsAreNoStart) {
  if (!is_root()) GTEST_SKIP() << "needs root, to start the gateway as another user";
  EXPECT_EXIT(
      {
        expect_a_refusal_to_start();
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace isogate::test
