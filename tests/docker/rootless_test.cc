#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/docker/engines.h"
#include "tests/support/api.h"
#include "tests/support/gateway.h"
#include "tests/support/processes.h"

// An Engine of an ordinary user, and that user's gateway.
namespace isogate::docker {
namespace {

using test::Caller;
using test::Gateway;
using test::GatewayOptions;
using testing::HasSubstr;

constexpr uid_t kItsUser = 65534;  // of tests/engines/podman.sh

class Rootless : public SharedEngine {
 protected:
  Rootless() : SharedEngine("ISOGATE_TEST_PODMAN_ROOTLESS", "podman.sh rootless") {}
  void SetUp() override {
    SharedEngine::SetUp();
    if (engine_ != nullptr && !test::is_root()) GTEST_SKIP() << "only root can start gateways of two users";
  }
  static GatewayOptions options(const std::string& config, uid_t user = kItsUser) {
    GatewayOptions options;
    options.yaml =
        "instance: " + new_name() + "\nbackends:\n  - name: docker\n    config: {" + config + "}\n";
    options.env = {{"DOCKER_HOST", std::getenv("ISOGATE_TEST_PODMAN_ROOTLESS")}};
    options.run_as = user;
    options.wait_ready = false;
    return options;
  }
  static std::string refusal_of(const GatewayOptions& options) {
    Gateway gateway(options);
    const auto answer = Caller(gateway, "a").exec("echo ran");
    EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
    return answer.text;
  }
};

constexpr const char* kUnlimited = "memory_mb: 0, cpus: 0, pids: 0";

TEST_F(Rootless, WhatItCannotLimitIsNotStarted) {
  if (engine_->info(usual()).cgroup_version != "1") GTEST_SKIP() << "cgroups v2: it may be able to limit";
  EXPECT_THAT(refusal_of(options("")), HasSubstr("cannot limit memory_mb, cpus, pids: use cgroups v2"));
  EXPECT_THAT(refusal_of(options("memory_mb: 0, cpus: 0")), HasSubstr("cannot limit pids:"));
}

TEST_F(Rootless, AGatewayOfRootIsToldToRunAsItsUser) {
  EXPECT_THAT(refusal_of(options(kUnlimited, 0)), HasSubstr("start the gateway as that user"));
}

TEST_F(Rootless, FilesBelongToItsUserOutsideAndInside) {
  Gateway gateway(options(kUnlimited));
  ASSERT_TRUE(test::decided(gateway));
  const Caller me(gateway, "a");
  ASSERT_TRUE(succeeded(me.write("by-api", "1")));
  EXPECT_EQ(me.out("id -u; touch by-exec; stat -c '%u %a' . by-api by-exec"),
            "65534\n65534 700\n65534 644\n65534 644\n");
  EXPECT_EQ(me.out("grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'"),
            "CapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\n"
            "NoNewPrivs:1\nSeccomp:2\n");
  EXPECT_EQ(me.run("touch /x").at("exit_code"), 1) << "the root file system is read-only";
  EXPECT_NE(me.out("readlink /proc/self/ns/user"),
            std::filesystem::read_symlink("/proc/self/ns/user").string() + "\n");
  int seen = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(gateway.state_dir() + "/sandboxes")) {
    const std::string name = entry.path().filename();
    if (name != "by-api" && name != "by-exec") continue;
    struct stat info {};
    ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, kItsUser) << name;
    ++seen;
  }
  EXPECT_EQ(seen, 2);
  EXPECT_THAT(me.get("/backends").text, HasSubstr("rootless podman"));
}

// Its containers are created one after the other, a second each: that is slow, and no reason to replace a
// backend host.
TEST_F(Rootless, ManyFirstCallsAtOnceAreServedByASlowEngine) {
  Gateway gateway(options(kUnlimited));
  ASSERT_TRUE(test::decided(gateway));
  const int many = test::slow_tests() ? 64 : 24;
  std::atomic<int> served = 0, ended = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < many; ++i) {
    callers.emplace_back([&, i] {
      const Caller me(gateway, "a" + std::to_string(i));
      const bool fine = test::eventually(180, [&] {
        const test::Answer answer = me.exec("true", {{"timeout_sec", 60}});
        ended += answer.text.find("backend host ended") != std::string::npos ? 1 : 0;
        return answer.status == 200;
      });
      served += fine ? 1 : 0;
    });
  }
  for (std::thread& each : callers) each.join();
  EXPECT_EQ(served, many);
  EXPECT_EQ(ended, 0) << gateway.log();
}

}  // namespace
}  // namespace isogate::docker
