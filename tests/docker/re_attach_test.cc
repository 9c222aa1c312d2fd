// What still runs when a gateway starts, and what a reload finds: re-attached without a call, used unchanged
// or not at all.
#include <csignal>
#include <thread>

#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::ExecStream;
using test::Gateway;
using test::GatewayOptions;
using test::seconds_of;
using testing::HasSubstr;
using testing::Not;

class ReAttach : public OnEngine {
 protected:
  ReAttach() { image_ = "isogate-test:small"; }
  GatewayOptions with(const std::string& config = {}, const std::string& more = {}) const {
    return lasting(config, "shell: /bin/sh\n" + more);
  }
  static std::string name(int i) { return "a" + std::to_string(i); }
  // A gateway that is killed when each of so many agents has a container with a mark in it.
  void leave_running(int agents, const GatewayOptions& options) {
    Gateway gateway(options);
    std::vector<std::thread> callers;
    for (int each = 0; each < 4; ++each)
      callers.emplace_back([&, each] {
        for (int i = each; i < agents; i += 4)
          EXPECT_EQ(Caller(gateway, name(i)).exec("echo mine > /tmp/mark; echo kept > kept").status, 200);
      });
    for (std::thread& each : callers) each.join();
    gateway.kill();
    ASSERT_EQ(running(), static_cast<size_t>(agents));
  }
  size_t running() const { return containers("sandbox").size(); }
  static size_t taken_up(const Gateway& gateway) {
    const std::string log = gateway.log();
    size_t count = 0;
    for (size_t at = 0; (at = log.find("sandbox_reattached", at)) != std::string::npos; ++at) ++count;
    return count;
  }
  int64_t memory_of(const std::string& container) const {
    return engine_->inspect(container, usual()).at("HostConfig").at("Memory").get<int64_t>();
  }
};

TEST_F(ReAttach, WhatNobodyCallsIsStoppedWhenItIsIdle) {
  leave_running(3, with());
  Gateway gateway(with("", "sandbox_idle_timeout_sec: 10"));
  ASSERT_TRUE(eventually(10, [&] { return taken_up(gateway) == 3; })) << gateway.log();
  std::this_thread::sleep_for(seconds(2));
  EXPECT_EQ(running(), 3u) << "the idle time counts from the re-attachment";
  EXPECT_TRUE(eventually(40, [&] { return running() == 0; })) << gateway.log();
  EXPECT_EQ(Caller(gateway, name(1)).content("kept"), "kept\n");
}

TEST_F(ReAttach, SigtermAfterAKillLeavesNothing) {
  leave_running(5, with());
  Gateway gateway(with());
  gateway.stop();
  EXPECT_EQ(running(), 0u) << gateway.log();
}

TEST_F(ReAttach, WhatIsKeptIsStoppedByAGatewayThatDoesNotKeep) {
  {
    Gateway gateway(with("", "on_shutdown: keep"));
    Caller(gateway, name(0)).run("true");
  }
  {
    Gateway gateway(with("", "on_shutdown: keep"));
    ASSERT_TRUE(eventually(10, [&] { return taken_up(gateway) == 1; })) << gateway.log();
  }
  EXPECT_EQ(running(), 1u);
  Gateway gateway(with());
  gateway.stop();
  EXPECT_EQ(running(), 0u);
}

TEST_F(ReAttach, TheNextCallFindsWhatItLeft) {
  leave_running(1, with());
  Gateway gateway(with());
  ASSERT_TRUE(eventually(10, [&] { return taken_up(gateway) == 1; })) << gateway.log();
  const Caller me(gateway, name(0));
  const std::string container = container_of(gateway, name(0));
  EXPECT_EQ(me.out("cat /tmp/mark"), "mine\n");
  EXPECT_EQ(container_of(gateway, name(0)), container);
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + name(0))));
  EXPECT_EQ(running(), 0u);
}

TEST_F(ReAttach, ARunnerThatIsReachedByStreamIsFoundToo) {
  const GatewayOptions by_stream = with("transport: stream");
  leave_running(1, by_stream);
  Gateway gateway(by_stream);
  ASSERT_TRUE(eventually(10, [&] { return taken_up(gateway) == 1; })) << gateway.log();
  EXPECT_EQ(Caller(gateway, name(0)).out("cat /tmp/mark"), "mine\n");
}

TEST_F(ReAttach, ManyDelayNeitherTheStartNorACall) {
  const int many = test::slow_tests() ? 100 : 12;
  GatewayOptions nobody = with();
  nobody.state_dir.clear();
  const double usual_start = seconds_of([&] { const Gateway empty(nobody); });
  leave_running(many, with());
  std::unique_ptr<Gateway> gateway;
  double ready = 1e9;
  for (int tries = 0; tries < 3 && ready >= usual_start + 2.0; ++tries) {
    if (gateway) gateway->kill();  // the bound applies to a machine that is not overloaded
    ready = seconds_of([&] { gateway = std::make_unique<Gateway>(with()); });
  }
  EXPECT_LT(ready, usual_start + 2.0) << "usual_start: of a gateway that finds nothing, including its end";
  std::atomic<int> served = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < many; ++i)
    callers.emplace_back([&, i] {
      const Answer answer = Caller(*gateway, name(i)).exec("cat /tmp/mark");
      EXPECT_EQ(answer.status, 200) << answer.text;
      served += answer.status == 200 && answer.body.at("stdout") == "mine\n" ? 1 : 0;
    });
  for (std::thread& each : callers) each.join();
  EXPECT_EQ(served, many) << gateway->log();
  EXPECT_EQ(running(), static_cast<size_t>(many));
  gateway->stop();
  EXPECT_EQ(running(), 0u);
}

TEST_F(ReAttach, WhatHasOtherSettingsIsEnded) {
  leave_running(2, with("memory_mb: 256"));
  Gateway gateway(with("memory_mb: 128"));
  EXPECT_TRUE(eventually(10, [&] { return running() == 0; })) << gateway.log();
  EXPECT_EQ(Caller(gateway, name(0)).content("kept"), "kept\n");
  EXPECT_EQ(memory_of(container_of(gateway, name(0))), 128 << 20);
}

TEST_F(ReAttach, WhatDoesNotAnswerIsRecreatedByTheNextCall) {
  leave_running(2, with());
  const Json silent = containers("sandbox").at(0);
  const pid_t runner = engine_->inspect(silent.at("Id"), usual()).at("State").at("Pid").get<pid_t>();
  ASSERT_EQ(::kill(runner, SIGSTOP), 0);
  Gateway gateway(with());
  EXPECT_TRUE(eventually(20, [&] { return taken_up(gateway) == 1 && running() == 1; })) << gateway.log();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Caller(gateway, name(i)).out("cat kept"), "kept\n");
  EXPECT_EQ(running(), 2u);
}

TEST_F(ReAttach, WhatWasLeftOfADeadContainerIsRemoved) {
  leave_running(1, with());
  engine_->kill(containers("sandbox").at(0).at("Id"), "KILL", usual());
  Gateway gateway(with());
  EXPECT_TRUE(eventually(10, [&] { return running() == 0; })) << gateway.log();
}

TEST_F(ReAttach, AReloadWithTheSameSettingsHurtsNobody) {
  Gateway gateway(with());
  const Caller busy(gateway, "busy"), idle(gateway, "idle");
  for (const Caller& each : {busy, idle}) each.run("echo mine > /tmp/mark");
  const std::string container = container_of(gateway, "busy");
  ExecStream stream(busy, {{"command", "echo up; while [ ! -e go ]; do sleep 0.1; done; echo done"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  gateway.reload(with("", "log: {level: debug}").yaml);
  for (int i = 0; i < 5; ++i)
    for (const Caller& each : {busy, idle}) EXPECT_EQ(each.out("cat /tmp/mark"), "mine\n");
  EXPECT_TRUE(succeeded(busy.write("go", "")));
  const auto events = stream.rest();
  EXPECT_EQ(events.back().at("outcome"), "exited") << events.back() << gateway.log();
  EXPECT_EQ(test::data_of(events, "stdout"), "up\ndone\n");
  EXPECT_TRUE(gateway.logs("\"event\":\"backend_host_exiting\"", 10)) << "the old backend host stays";
  EXPECT_EQ(busy.out("cat /tmp/mark"), "mine\n");
  EXPECT_EQ(container_of(gateway, "busy"), container);
}

TEST_F(ReAttach, AReloadWithOtherSettingsWaitsForWhatRuns) {
  Gateway gateway(with("memory_mb: 256"));
  const Caller busy(gateway, "busy"), idle(gateway, "idle");
  for (const Caller& each : {busy, idle}) each.run("true");
  const std::string before = container_of(gateway, "busy");
  ExecStream stream(busy, {{"command", "while [ ! -e /tmp/go ]; do sleep 0.1; done"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  gateway.reload(with("memory_mb: 128").yaml);
  idle.run("true");
  EXPECT_EQ(memory_of(container_of(gateway, "idle")), 128 << 20);
  const Answer refusal = busy.exec("true");
  EXPECT_TRUE(refused(refusal, 503, "backend_unavailable"));
  EXPECT_EQ(refusal.header("retry-after"), "5");
  EXPECT_THAT(refusal.text, HasSubstr("settings of this sandbox have changed"));
  ASSERT_EQ(exec(before, {"sh", "-c", "touch /tmp/go && echo done"}), "done\n");
  const auto events = stream.rest();
  EXPECT_EQ(events.back().at("outcome"), "exited") << events.back();
  busy.run("true");
  EXPECT_NE(container_of(gateway, "busy"), before);
  EXPECT_EQ(memory_of(container_of(gateway, "busy")), 128 << 20);
}

TEST_F(ReAttach, WhatAReloadLeavesInTheHostBeforeIsStoppedToo) {
  Gateway gateway(with("", "drain_timeout_sec: 1"));
  const Caller busy(gateway, "busy"), idle(gateway, "idle");
  for (const Caller& each : {busy, idle}) each.run("true");
  ExecStream stream(busy, {{"command", "sleep 60"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  gateway.reload(with("", "drain_timeout_sec: 1\nlog: {level: debug}").yaml);
  gateway.stop();
  EXPECT_EQ(stream.rest().back().at("outcome"), "killed");
  EXPECT_EQ(running(), 0u) << gateway.log();
}

TEST_F(ReAttach, ASandboxIsDeletedWhileItsCallsRunInTheHostBefore) {
  Gateway gateway(with());
  const Caller busy(gateway, "busy");
  ExecStream stream(busy, {{"command", "sleep 60"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  gateway.reload(with("memory_mb: 128", "log: {level: debug}").yaml);
  EXPECT_TRUE(succeeded(busy.call("DELETE", "/sandboxes/busy")));
  EXPECT_EQ(stream.rest().back().at("outcome"), "killed");
  EXPECT_EQ(running(), 0u);
}

TEST_F(ReAttach, FirstCallsDuringReloadsAreServed) {
  Gateway gateway(with());
  std::atomic<bool> over = false;
  std::atomic<int> served = 0;
  std::vector<std::thread> callers;
  for (int each = 0; each < 3; ++each)
    callers.emplace_back([&, each] {
      for (int i = 0; !over; ++i) {
        const Answer answer =
            Caller(gateway, "n" + std::to_string(each) + "-" + std::to_string(i)).exec("echo x");
        EXPECT_EQ(answer.status, 200) << answer.text;
        ++served;
      }
    });
  callers.emplace_back([&] {
    while (!over) EXPECT_EQ(gateway.get("/readyz").status, 200);
  });
  constexpr int kEnough = 6;  // of both, however slow they are here
  for (int i = 0; i < kEnough || (served < kEnough && i < 10 * kEnough); ++i)
    gateway.reload(with(i % 3 == 0 ? "memory_mb: 100" : "", i % 2 == 0 ? "log: {level: debug}" : "").yaml);
  over = true;
  for (std::thread& each : callers) each.join();
  EXPECT_GE(served, kEnough);
  EXPECT_THAT(gateway.log(), Not(HasSubstr("evidence_mismatch")));
  gateway.stop();
  EXPECT_EQ(running(), 0u);
}

}  // namespace
}  // namespace isogate::docker
