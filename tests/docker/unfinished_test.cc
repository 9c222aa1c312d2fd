#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <thread>

#include "tests/docker/gateways.h"

// A sandbox that was created only in part leaves nothing behind, and its agent still works.
namespace isogate::docker {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::Gateway;

class Unfinished : public OnEngine {
 protected:
  // The latest process of the only backend.
  static pid_t host_of(const Gateway& gateway) {
    const std::string log = gateway.log(), key = "\"host_pid\":";
    return std::stoi(log.substr(log.rfind(key) + key.size()));
  }
  size_t networks() const {
    const std::string found =
        docker({"network", "ls", "-q", "--filter", std::string("label=") + kLabelInstance + "=" + instance_});
    return static_cast<size_t>(std::count(found.begin(), found.end(), '\n'));
  }
  size_t workspaces() const {
    return engine_
        ->list({{kLabelInstance, instance_}, {kLabelRole, "workspace"}}, usual(), ObjectKind::kVolume)
        .size();
  }
  bool nothing_is_left() {
    return eventually(45, [&] {
      return engine_->list({{kLabelInstance, instance_}}, usual()).empty() && networks() == 0 &&
             workspaces() == 0;
    });
  }
  void kill_host_under_first_call(const Gateway& gateway, int milliseconds) {
    const Caller me(gateway, "agent-" + std::to_string(milliseconds));
    std::thread first([&me] { me.exec("true"); });
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ::kill(host_of(gateway), SIGKILL);
    first.join();
    Answer last;
    EXPECT_TRUE(eventually(30, [&] { return (last = me.exec("true")).status == 200; }))
        << milliseconds << " ms: " << last.text;
  }
  // Four kills for each gateway: more in a minute would quarantine its backend.
  void kill_hosts_under_first_calls(const std::string& config) {
    for (const auto& times : {std::array{5, 40, 80, 120}, std::array{160, 220, 300, 450}}) {
      Gateway gateway(lasting(config));
      for (const int milliseconds : times) kill_host_under_first_call(gateway, milliseconds);
      for (const int milliseconds : times) {
        const std::string agent = "agent-" + std::to_string(milliseconds);
        EXPECT_TRUE(succeeded(Caller(gateway, agent).call("DELETE", "/sandboxes/" + agent + "?purge=true")));
      }
    }
    EXPECT_TRUE(nothing_is_left()) << engine_->list({{kLabelInstance, instance_}}, usual()).size()
                                   << " containers, " << networks() << " networks, " << workspaces();
  }
};

TEST_F(Unfinished, AFailedFirstCallLeavesNothingAndTheNextOneSucceeds) {
  const test::TemporaryDirectory source("/var/tmp");
  const std::string fifo = source.path() + "/fifo";
  for (const char* place : {"bind", "volume"}) {
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0644), 0);
    Gateway gateway(options("network: internal, workspace: " + std::string(place) +
                            ", copies: [{source: " + source.path() + ", target: /opt/tools}]"));
    const Caller me(gateway, "a");
    EXPECT_EQ(me.exec("true").status, 503);
    EXPECT_TRUE(nothing_is_left());
    EXPECT_THAT(me.get("/sandboxes").body.at("sandboxes"), testing::IsEmpty());
    ASSERT_EQ(::unlink(fifo.c_str()), 0);
    EXPECT_EQ(me.out("echo fine"), "fine\n");
    EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
    gateway.stop();
    EXPECT_TRUE(nothing_is_left());
  }
}

TEST_F(Unfinished, AHostThatIsKilledWhileItMakesASandbox) { kill_hosts_under_first_calls(""); }

TEST_F(Unfinished, AHostThatIsKilledWhileItMakesVolumesAndNetworks) {
  kill_hosts_under_first_calls("workspace: volume, network: internal");
}

TEST_F(Unfinished, ASharedDirectoryThatIsGoneIsNoReasonToMoveWorkspaces) {
  const test::TemporaryDirectory shared("/var/tmp");
  const std::string path = shared.path() + "/shared";
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  Gateway gateway(options("", "shared_dirs:\n  - {prefix: shared, path: " + path + "}"));
  ASSERT_EQ(::rmdir(path.c_str()), 0);
  const Answer refusal = Caller(gateway, "a").exec("true");
  EXPECT_EQ(refusal.status, 503) << refusal.text;
  EXPECT_THAT(refusal.text, testing::HasSubstr("/mnt/shared"));
  EXPECT_THAT(refusal.text, testing::Not(testing::HasSubstr(path)));
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  EXPECT_EQ(Caller(gateway, "a").out("echo fine"), "fine\n");
  EXPECT_EQ(workspaces(), 0u);
}

}  // namespace
}  // namespace isogate::docker
