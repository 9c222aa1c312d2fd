// A container that somebody changed, or started again, is not the one that was measured.
#include <gmock/gmock.h>

#include <csignal>
#include <thread>

#include "tests/docker/engine_proxy.h"
#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::Gateway;
using test::GatewayOptions;

class Changed : public OnEngine {
 protected:
  GatewayOptions with(const std::string& more = {}) const { return lasting(config_, more); }
  std::string running() const {
    const auto found = containers("sandbox");
    return found.size() == 1 && found[0].at("State") == "running" ? found[0].at("Id").get<std::string>() : "";
  }
  // `change` is made to the container while no gateway runs; it is not used again.
  void while_away(const std::function<void(const std::string& id)>& change) {
    const std::string before = left_by(with("on_shutdown: keep"), "echo kept > kept; echo mine > /tmp/mark");
    change(before);
    Gateway gateway(with());
    const Caller me(gateway, "a");
    EXPECT_EQ(me.out("cat kept; cat /tmp/mark 2>/dev/null"), "kept\n");
    EXPECT_NE(container_of(gateway, "a"), before);
    EXPECT_EQ(failure_of([&] { engine_->inspect(before, usual()); }).http_status, 404);
  }
  void while_it_runs(const std::function<void(const std::string& id)>& change) {
    Gateway gateway(with());
    const Caller me(gateway, "a");
    me.run("echo kept > kept; echo mine > /tmp/mark");
    const std::string before = container_of(gateway, "a");
    change(before);
    EXPECT_TRUE(eventually(10, [&] { return me.exec("true").status == 200 && running() != before; }));
    EXPECT_EQ(me.out("cat kept; cat /tmp/mark 2>/dev/null"), "kept\n");
    EXPECT_EQ(failure_of([&] { engine_->inspect(before, usual()); }).http_status, 404);
  }
  std::string config_;
};

TEST_F(Changed, MoreMemoryWhileTheGatewayWasAway) {
  while_away([&](const std::string& id) { docker({"update", "--memory", "1g", "--memory-swap", "2g", id}); });
}

TEST_F(Changed, MoreProcessesWhileTheGatewayWasAway) {
  while_away([&](const std::string& id) { docker({"update", "--pids-limit", "4096", id}); });
}

TEST_F(Changed, StartedAgainWhileTheGatewayWasAway) {
  while_away([&](const std::string& id) { docker({"restart", "-t", "0", id}); });
}

TEST_F(Changed, MoreMemoryWhileItRuns) {
  while_it_runs([&](const std::string& id) {
    docker({"update", "--memory", "1g", "--memory-swap", "2g", id});
  });
}

TEST_F(Changed, MoreMemoryWhileItIsIdle) {
  Gateway gateway(with());
  const Caller me(gateway, "a");
  me.run("echo kept > kept");
  const std::string before = container_of(gateway, "a");
  docker({"update", "--memory", "1g", "--memory-swap", "2g", before});
  EXPECT_TRUE(eventually(10, [&] { return running().empty(); })) << gateway.log();
  EXPECT_EQ(me.out("cat kept"), "kept\n");
  EXPECT_NE(container_of(gateway, "a"), before);
}

TEST_F(Changed, MoreMemoryWhileTheEnginesEventsCouldNotBeFollowed) {
  const std::string address = std::getenv(variable_);
  if (!address.starts_with("unix://")) GTEST_SKIP() << "the Engine is not at a Unix socket";
  EngineProxy proxy(address.substr(7));
  GatewayOptions options = with();
  options.env = {{"DOCKER_HOST", proxy.address()}};
  Gateway gateway(options);
  const Caller me(gateway, "a");
  me.run("echo kept > kept");
  const std::string before = container_of(gateway, "a");
  proxy.cut_events(true);
  ASSERT_TRUE(gateway.logs("tried again until it can be followed")) << gateway.log();
  docker({"update", "--memory", "1g", "--memory-swap", "2g", before});
  EXPECT_EQ(me.out("cat kept"), "kept\n");
  ASSERT_EQ(container_of(gateway, "a"), before) << "nothing has reported it";
  proxy.cut_events(false);
  EXPECT_TRUE(gateway.logs("its container's settings were changed from outside")) << gateway.log();
  EXPECT_EQ(me.out("cat kept"), "kept\n");
  EXPECT_NE(container_of(gateway, "a"), before);
}

TEST_F(Changed, StartedAgainWhileItRuns) {
  while_it_runs([&](const std::string& id) { docker({"restart", "-t", "0", id}); });
}

// A container without a network can be given none; one with a network of its own can.
class ChangedNetwork : public Changed {
 protected:
  ChangedNetwork() { config_ = "network: internal"; }
  void SetUp() override {
    Changed::SetUp();
    if (!IsSkipped()) network_ = engine_->create_network(new_name(), Json{{"Driver", "bridge"}}, usual());
  }
  void TearDown() override {
    Changed::TearDown();
    if (!network_.empty()) engine_->remove(network_, usual(), ObjectKind::kNetwork);
  }
  std::string network_;
};

TEST_F(ChangedNetwork, AnotherNetworkWhileTheGatewayWasAway) {
  while_away([&](const std::string& id) { docker({"network", "connect", network_, id}); });
}

TEST_F(ChangedNetwork, AnotherNetworkWhileItRuns) {
  while_it_runs([&](const std::string& id) { docker({"network", "connect", network_, id}); });
}

// Contact with a runner that does not answer is lost: what it runs is killed from outside, and soon.
TEST_F(Changed, ATimeoutIsAnsweredThoughTheRunnerDoesNotAnswer) {
  Gateway gateway(with());
  const Caller me(gateway, "a");
  me.run("echo kept > kept");
  const std::string before = container_of(gateway, "a");
  const pid_t runner = engine_->inspect(before, usual()).at("State").at("Pid").get<pid_t>();
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(500));
    ::kill(runner, SIGSTOP);
  });
  Answer answer;
  const double seconds = test::seconds_of([&] { answer = me.exec("sleep 4711.5", {{"timeout_sec", 2}}); });
  stopper.join();
  EXPECT_LT(seconds, 2.0 + 9) << "the Engine has 2 s to say that it is killed; a runner would have 10 s";
  EXPECT_TRUE(answer.status == 502 || answer.body.at("outcome") == "timed_out") << answer.text;
  EXPECT_TRUE(eventually(5, [&] {
    return test::run_program({"pgrep", "-f", "sleep 4711[.]5"}).exit_code == 1;
  })) << "it outlived its exec";
  EXPECT_EQ(me.out("cat kept"), "kept\n");
  EXPECT_NE(container_of(gateway, "a"), before);
}

}  // namespace
}  // namespace isogate::docker
