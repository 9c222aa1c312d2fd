// An Engine that ends, and what it leaves: through a gateway, with an Engine for each test.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/docker/fake_engine.h"
#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::ExecStream;
using test::Gateway;
using test::GatewayOptions;
using testing::HasSubstr;

GatewayOptions options_for(const std::string& address, const std::string& config = {}) {
  GatewayOptions options;
  options.yaml = "backends:\n  - name: docker\n    config: {image: \"isogate-test:small\"" +
                 (config.empty() ? "" : ", " + config) + "}\nshell: /bin/sh\n";
  options.env = {{"DOCKER_HOST", address}};
  return options;
}

class AnEngineThatGoes : public testing::Test {
 protected:
  void SetUp() override {
    if (!engine_.obstacle().empty()) GTEST_SKIP() << engine_.obstacle();
  }
  PrivateEngine engine_;
};

// Without live-restore an Engine ends its containers as it ends.
TEST_F(AnEngineThatGoes, ARestartCostsTheCallsInFlightAndNoWorkspace) {
  Gateway gateway(options_for(engine_.address()));
  const Caller me(gateway, "a"), other(gateway, "b");
  for (const Caller& each : {me, other})
    ASSERT_EQ(each.run("echo of-" + each.agent() + " | tee kept > /tmp/mark").at("exit_code"), 0);
  ExecStream stream(me, {{"command", "echo up; sleep 60"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(stream.next()->at("event"), "stdout") << "it runs";
  engine_.stop();
  const auto events = stream.rest();
  EXPECT_EQ(events.back().at("outcome"), "unknown") << events.back();
  EXPECT_TRUE(events.back().at("exit_code").is_null());
  engine_.start_again();
  for (const Caller& each : {me, other}) {
    EXPECT_TRUE(eventually(20, [&] { return each.exec("true").status == 200; }));
    EXPECT_EQ(each.out("cat kept; ls /tmp"), "of-" + each.agent() + "\n")
        << "a fresh container, the same files";
  }
  EXPECT_TRUE(gateway.logs("the Engine's events are followed again")) << gateway.log();
}

// SIGKILL: none of its processes can report its end.
TEST_F(AnEngineThatGoes, AKilledOneCostsWhatGoesThroughItAndIsFoundAgain) {
  std::vector<std::unique_ptr<Gateway>> all;
  for (const std::string transport : {"socket", "stream", "exec"}) {
    GatewayOptions options = options_for(engine_.address(), "transport: " + transport);
    options.yaml += "instance: by-" + transport + "\n";
    all.push_back(std::make_unique<Gateway>(options));
  }
  const Gateway& gateway = *all.front();
  const Caller me(gateway, "a");
  ASSERT_EQ(me.out("echo works"), "works\n");
  ExecStream beside(me, {{"command", "while [ ! -e go ]; do sleep 0.1; done; echo lived"}}, 100);
  ASSERT_EQ(beside.next()->at("event"), "start");
  std::vector<std::unique_ptr<ExecStream>> through;
  for (size_t i = 1; i < all.size(); ++i) {
    through.push_back(
        std::make_unique<ExecStream>(Caller(*all[i], "a"), Json{{"command", "echo up; sleep 100"}}, 100));
    ASSERT_EQ(through.back()->next()->at("event"), "start");
    ASSERT_EQ(through.back()->next()->at("event"), "stdout") << "it runs";
  }

  engine_.kill();
  for (const auto& stream : through) {
    Json end;
    EXPECT_LT(test::seconds_of([&] { end = stream->rest().back(); }), 10.0);
    EXPECT_EQ(end.at("outcome"), "unknown") << end;
    EXPECT_TRUE(end.at("exit_code").is_null()) << end;
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(me.out("echo by the runner"), "by the runner\n");
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(
        refused(Caller(gateway, "new-" + std::to_string(i)).exec("true"), 503, "backend_unavailable"));
  // Whichever is first: three failures, or a probe.
  EXPECT_THAT(me.get("/backends").text, testing::AnyOf(HasSubstr("its circuit breaker is open"),
                                                       HasSubstr("it is unavailable")));
  EXPECT_TRUE(succeeded(me.write("go", "")));
  const auto events = beside.rest();
  EXPECT_EQ(test::data_of(events, "stdout"), "lived\n");
  EXPECT_EQ(events.back().at("outcome"), "exited");

  engine_.start_again();
  for (const auto& each : all)  // 2 s after its socket is back, and the start of a container
    EXPECT_TRUE(eventually(20, [&] { return Caller(*each, "new-0").exec("true").status == 200; }));
  EXPECT_EQ(me.out("ls; echo works"), "go\nworks\n");
}

TEST_F(AnEngineThatGoes, AWorkspaceThatWentWithItIsGoneUntilItsSandboxIsDeleted) {
  Gateway gateway(options_for(engine_.address()));
  const Caller me(gateway, "a"), other(gateway, "b");
  ASSERT_TRUE(succeeded(me.write("kept", "1")));
  ASSERT_TRUE(succeeded(other.write("kept", "2")));
  std::string id;
  const Answer listed = me.get("/sandboxes");
  for (const Json& row : listed.body.at("sandboxes"))
    if (row.at("agent_id") == "a") id = row.at("sandbox_id");
  ASSERT_NE(id, "");
  engine_.stop();
  std::filesystem::remove_all(gateway.state_dir() + "/sandboxes/" + id + "/workspace");
  engine_.start_again();
  EXPECT_TRUE(eventually(20, [&] { return me.exec("true").status == 410; })) << me.exec("true").text;
  EXPECT_TRUE(refused(me.exec("touch ran"), 410, "sandbox_lost"));
  EXPECT_TRUE(refused(me.read("kept"), 410, "sandbox_lost"));
  EXPECT_EQ(other.content("kept"), "2");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(me.out("ls -A; echo fresh"), "fresh\n");
}

// The runner is reached without the Engine: running execs continue, and new calls of open sandboxes work,
// too.
TEST_F(AnEngineThatGoes, ExecsGoOnWhileItIsDead) {
  Gateway gateway(options_for(engine_.address()));
  const Caller me(gateway, "a");
  me.run("true");
  ExecStream stream(me, {{"command", "sleep 1; echo done"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  engine_.kill();
  EXPECT_EQ(me.out("echo meanwhile"), "meanwhile\n");
  const auto events = stream.rest();
  EXPECT_EQ(events.back().at("outcome"), "exited") << events.back();
  engine_.start_again();
  // Without live-restore the Engine ends the containers that it finds: the next call has a fresh one.
  EXPECT_TRUE(eventually(20, [&] { return me.exec("echo back").status == 200; }));
}

TEST(AnEngineOfAnotherVersion, IsAReasonThatNamesBoth) {
  for (const auto& [newest, oldest, said] :
       {std::tuple{"1.39", "1.12", "up to 1.39, isogate speaks 1.40 to 1.47"},
        std::tuple{"1.60", "1.55", "from 1.55 on, isogate speaks 1.40 to 1.47"}}) {
    FakeEngine engine;
    engine.be(newest, oldest);
    GatewayOptions options = options_for(engine.address());
    options.wait_ready = false;
    Gateway gateway(options);
    const Answer answer = Caller(gateway, "a").exec("true");
    EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
    EXPECT_THAT(answer.text, HasSubstr(said));
  }
}

TEST(AnEngineWithoutAddresses, WithoutAFreeNetworkTheRefusalSaysSo) {
  PrivateEngine engine({"--default-address-pool", "base=10.213.0.0/28,size=29"});
  if (!engine.obstacle().empty()) GTEST_SKIP() << engine.obstacle();
  Gateway gateway(options_for(engine.address(), "network: internal"));
  // Two networks, of which the Engine's own bridge has taken one, or not.
  std::vector<std::string> served;
  for (const std::string agent : {"a", "b", "c", "d", "e"}) {
    const Answer answer = Caller(gateway, agent).exec("true");
    if (answer.status == 200) {
      served.push_back(agent);
      continue;
    }
    EXPECT_TRUE(refused(answer, 507, "quota_exceeded"));
    EXPECT_THAT(answer.text, HasSubstr("default-address-pools"));
  }
  ASSERT_GE(served.size(), 1u);
  ASSERT_LE(served.size(), 2u);
  EXPECT_EQ(Caller(gateway, served[0]).out("echo mine"), "mine\n");
  ASSERT_EQ(Caller(gateway, served[0]).call("DELETE", "/sandboxes/" + served[0] + "?purge=true").status, 200);
  EXPECT_EQ(Caller(gateway, "e").out("echo mine"), "mine\n");
}

// gVisor supports no socket from outside, and its /proc does not show what must be measured.
TEST(AnotherRuntime, GvisorIsReachedByStreamAndNotServedUnmeasured) {
  if (test::run_program({"sh", "-c", "command -v runsc"}).exit_code != 0)
    GTEST_SKIP() << "runsc is not installed (scripts/install-deps.sh --tests)";
  const test::TemporaryDirectory files;
  // Its own network stack looks for interfaces that newer kernels hide from it.
  const std::string runtimes = files.file(
      "daemon.json", R"({"runtimes": {"runsc": {"path": "runsc", "runtimeArgs": ["--network=none"]}}})");
  const PrivateEngine engine({"--config-file", runtimes});
  if (!engine.obstacle().empty()) GTEST_SKIP() << engine.obstacle();
  const test::ProgramResult tried =
      test::run_program({"docker", "-H", engine.address(), "run", "--rm", "--network=none", "--runtime=runsc",
                         "isogate-test:small", "true"});
  if (tried.exit_code != 0) GTEST_SKIP() << "gVisor does not run here: " << tried.err;
  Gateway gateway(options_for(engine.address(), "runtime: runsc"));
  const Answer answer = Caller(gateway, "a").exec("touch ran");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_THAT(answer.text, HasSubstr("its isolation was not measured"));
  EXPECT_THAT(gateway.log(),
              HasSubstr("runners are reached by stream: the runner did not come over its socket within 5 s"));
  Engine client(parse_address(engine.address(), "the test"));
  EXPECT_TRUE(eventually(10, [&] { return client.list({}, usual()).empty(); }))
      << "the refused container stays";
}

}  // namespace
}  // namespace isogate::docker
