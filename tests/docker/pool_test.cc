#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "tests/docker/gateways.h"
#include "tests/support/processes.h"

// Sandboxes made ahead, through a real gateway on a real Engine.
namespace isogate::docker {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::Gateway;
using test::GatewayOptions;

class DockerWarmPool : public OnEngine {
 protected:
  // A test that reads how many are ready must see changes soon.
  GatewayOptions options(const std::string& config = {}, const std::string& more = {}) const {
    return lasting(config, "probe_interval_sec: 1\n" + more);
  }
  static std::string wish(int size) { return "warm_pool: " + std::to_string(size); }
  // Those that nobody has taken yet, according to the gateway: they do not have a sandbox's name yet.
  std::set<std::string> ready(const Gateway& gateway) {
    std::set<std::string> taken, found;
    const Answer answer = Caller(gateway, "nobody").get("/sandboxes");
    for (const Json& row : answer.body.at("sandboxes")) taken.insert(row.at("sandbox_id"));
    for (const Json& each : engine_->list({{kLabelInstance, instance_}}, usual())) {
      const std::string name = name_of(each.at("Id"));
      if (each.at("State") == "running" && !name.empty() && !taken.contains(name.substr(0, name.find('.'))))
        found.insert(each.at("Id"));
    }
    return found;
  }
  bool are_ready(const Gateway& gateway, size_t count) {
    return eventually(40, [&] { return ready(gateway).size() == count; }) && announced(gateway, count);
  }
  // The gateway asks its backends every few seconds.
  static bool announced(const Gateway& gateway, size_t count) {
    const std::string said =
        std::to_string(count) + " of " + std::to_string(count) + " sandboxes ready ahead";
    return eventually(
        20, [&] { return Caller(gateway, "nobody").get("/backends").text.find(said) != std::string::npos; });
  }
  std::set<std::string> all() {
    std::set<std::string> ids;
    for (const Json& each : engine_->list({{kLabelInstance, instance_}}, usual())) ids.insert(each.at("Id"));
    return ids;
  }
  // Of the agent, by the name that it has for people. (The Engine's list shows a new name late.)
  std::string taken_by(const Gateway& gateway, const std::string& agent) {
    const Answer answer = Caller(gateway, agent).get("/sandboxes");
    for (const Json& row : answer.body.at("sandboxes")) {
      if (row.at("agent_id") != agent) continue;
      for (const std::string& id : all())
        if (name_of(id).starts_with(row.at("sandbox_id").get<std::string>() + ".")) return id;
    }
    return "none";
  }
  // Empty for one that is being created or removed: it is listed already, or still.
  std::string name_of(const std::string& id) {
    std::string name;
    const Failure failure =
        failure_of([&] { name = engine_->inspect(id, usual()).at("Name").get<std::string>().substr(1); });
    EXPECT_TRUE(failure.status == ISOGATE_OK || failure.http_status == 404) << failure.message;
    return name;
  }
};

TEST_F(DockerWarmPool, ANewAgentTakesWhatIsReadyAndAnotherIsMade) {
  Gateway gateway(options(wish(2)));
  ASSERT_TRUE(are_ready(gateway, 2));
  const auto before = all();
  ASSERT_EQ(before.size(), 2u);
  const Caller a(gateway, "a"), b(gateway, "b");
  EXPECT_EQ(a.out("ls -A; id -u > mine; cat mine"), a.out("id -u"));
  EXPECT_NE(a.out("id -u"), b.out("id -u"));
  EXPECT_EQ(b.out("ls -A"), "");
  EXPECT_TRUE(before.contains(taken_by(gateway, "a")));
  EXPECT_TRUE(before.contains(taken_by(gateway, "b")));
  EXPECT_TRUE(eventually(30, [&] { return all().size() == 4; }));
  const Json row = a.get("/sandboxes").body.at("sandboxes").at(0);
  EXPECT_EQ(row.at("isolation"), "container") << row;
}

TEST_F(DockerWarmPool, WhatWasTakenIsRebuiltOnItsOwnWorkspace) {
  Gateway gateway(options(wish(1)));
  ASSERT_TRUE(are_ready(gateway, 1));
  const Caller me(gateway, "a");
  ASSERT_TRUE(succeeded(me.write("kept", "still here")));
  const std::string uid = me.out("id -u"), container = taken_by(gateway, "a");
  engine_->kill(container, "KILL", usual());
  EXPECT_EQ(me.out("cat kept"), "still here");
  EXPECT_EQ(me.out("id -u"), uid);
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(me.out("ls -A"), "");
}

TEST_F(DockerWarmPool, AnAgentThatHasFilesKeepsThem) {
  {
    Gateway gateway(options());
    ASSERT_TRUE(succeeded(Caller(gateway, "a").write("kept", "still here")));
  }
  Gateway gateway(options(wish(1)));
  ASSERT_TRUE(are_ready(gateway, 1));
  EXPECT_EQ(Caller(gateway, "a").content("kept"), "still here");
  EXPECT_EQ(all().size(), 2u);
}

TEST_F(DockerWarmPool, ItEndsWithTheGatewayAndWhatWasTakenIsKeptWhereThatIsWished) {
  const GatewayOptions keep = options(wish(2), "on_shutdown: keep");
  std::string mine;
  {
    Gateway gateway(keep);
    ASSERT_TRUE(are_ready(gateway, 2));
    Caller(gateway, "a").run("echo mine > /tmp/mark");
    mine = taken_by(gateway, "a");
    gateway.stop();
  }
  EXPECT_EQ(all(), std::set<std::string>{mine});
  Gateway again(keep);
  EXPECT_EQ(Caller(again, "a").out("cat /tmp/mark"), "mine\n");
  EXPECT_TRUE(succeeded(Caller(again, "a").call("DELETE", "/sandboxes/a?purge=true")));
}

TEST_F(DockerWarmPool, WhatAKilledGatewayHadReadyIsRemovedByTheNext) {
  std::string mine;
  {
    Gateway gateway(options(wish(2)));
    ASSERT_TRUE(are_ready(gateway, 2));
    ASSERT_TRUE(succeeded(Caller(gateway, "a").write("kept", "still here")));
    mine = taken_by(gateway, "a");
    gateway.kill();
  }
  ASSERT_GE(all().size(), 2u);
  Gateway again(options());
  EXPECT_EQ(Caller(again, "a").content("kept"), "still here");
  EXPECT_TRUE(eventually(30, [&] { return all().size() == 1; })) << all().size();
  EXPECT_EQ(taken_by(again, "a"), mine) << "and the taken one is still the agent's";
  const auto is_trash = [](const auto& each) {
    return each.path().filename() == ".purged" && std::filesystem::is_empty(each);
  };
  EXPECT_TRUE(eventually(30, [&] {
    const std::filesystem::directory_iterator ready(state_.path() + "/sandboxes/ready.docker");
    return std::all_of(begin(ready), end(ready), is_trash);
  })) << "their workspaces";
}

// At a reload it has them ready beside its successor, as long as a call of its own runs.
TEST_F(DockerWarmPool, WhatAKilledHostHadReadyIsRemovedByItsSuccessor) {
  Gateway gateway(options(wish(1)));
  ASSERT_TRUE(are_ready(gateway, 1));
  const std::string left = *ready(gateway).begin();
  const pid_t host = test::host_of(gateway, "docker");
  test::ExecStream stream(Caller(gateway, "b"), {{"command", "sleep 60"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_TRUE(are_ready(gateway, 1));
  const auto before = ready(gateway);
  ASSERT_FALSE(before.contains(left)) << "the call took it";
  gateway.reload(options(wish(1), "log: {level: debug}").yaml);
  ASSERT_TRUE(eventually(40, [&] { return ready(gateway).size() == 2; })) << "one of each host";
  std::this_thread::sleep_for(seconds(6));  // the successor has looked for leftovers
  ASSERT_TRUE(test::alive(host));
  EXPECT_EQ(ready(gateway).size(), 2u) << "those of a host that lives are kept";
  ASSERT_EQ(::kill(host, SIGKILL), 0);
  const std::string gone = *before.begin();
  EXPECT_TRUE(eventually(15, [&] { return !all().contains(gone); })) << gateway.log();
  EXPECT_EQ(ready(gateway).size(), 1u);
}

TEST_F(DockerWarmPool, WhatDiesBeforeAnybodyCameIsReplaced) {
  Gateway gateway(options(wish(1)));
  ASSERT_TRUE(are_ready(gateway, 1));
  const std::string dead = *all().begin();
  engine_->kill(dead, "KILL", usual());
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("echo fine"), "fine\n");
  EXPECT_NE(taken_by(gateway, "a"), dead);
  EXPECT_TRUE(eventually(30, [&] { return !all().contains(dead) && all().size() == 2; }));
}

TEST_F(DockerWarmPool, ItFollowsTheLimitsThatAreAskedFor) {
  GatewayOptions limited = options();
  limited.yaml = "probe_interval_sec: 1\ninstance: " + instance_ +
                 "\nbackends:\n  - name: docker\n    limits: {memory_mb: 128}\n"
                 "    config: {image: \"isogate-test:base\", warm_pool: 1}\n";
  Gateway gateway(limited);
  ASSERT_TRUE(are_ready(gateway, 1));
  const auto before = all();
  Caller(gateway, "a").run("true");
  EXPECT_FALSE(before.contains(taken_by(gateway, "a")));
  std::string container;
  int nth = 0;
  EXPECT_TRUE(eventually(30, [&] {
    const auto now = ready(gateway);
    const std::string agent = "b" + std::to_string(nth++);
    Caller(gateway, agent).run("true");
    container = taken_by(gateway, agent);
    return now.contains(container);
  }));
  EXPECT_EQ(engine_->inspect(container, usual()).at("HostConfig").at("Memory"), 128u << 20);
  EXPECT_FALSE(all().contains(*before.begin()));
}

TEST_F(DockerWarmPool, VolumesAndNetworksAreMadeAheadToo) {
  Gateway gateway(options(wish(1) + ", workspace: volume, network: dedicated"));
  ASSERT_TRUE(are_ready(gateway, 1));
  const auto before = all();
  const Caller me(gateway, "a");
  ASSERT_TRUE(succeeded(me.write("kept", "still here")));
  const std::string container = taken_by(gateway, "a");
  EXPECT_TRUE(before.contains(container));
  engine_->kill(container, "KILL", usual());
  EXPECT_EQ(me.out("cat kept"), "still here");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  gateway.stop();
  EXPECT_TRUE(all().empty());
  EXPECT_TRUE(
      engine_->list({{kLabelInstance, instance_}, {kLabelRole, "workspace"}}, usual(), ObjectKind::kVolume)
          .empty());
}

TEST_F(DockerWarmPool, TheLogNamesTheSandboxThatTookItAlsoOfItsCompanions) {
  Gateway gateway(options(wish(1) + ", network: internal, companions: [{name: web, image: "
                                    "\"isogate-test:small\", command: [sleep, \"600\"]}]"));
  ASSERT_TRUE(announced(gateway, 1)) << gateway.log();
  std::vector<Json> companions;  // they may be later than their sandbox
  ASSERT_TRUE(eventually(30, [&] {
    companions = containers("companion");
    return companions.size() == 1 && companions[0].at("State") == "running";
  })) << gateway.log();
  const Caller me(gateway, "a");
  me.run("true");
  const std::string id = me.get("/sandboxes").body.at("sandboxes").at(0).at("sandbox_id");
  engine_->kill(companions[0].at("Id"), "KILL", usual());
  EXPECT_TRUE(gateway.logs("the companion `web` of " + id + " ended with exit code 137")) << gateway.log();
  engine_->kill(taken_by(gateway, "a"), "KILL", usual());
  EXPECT_TRUE(gateway.logs("the container " + id + ".")) << gateway.log();
}

TEST_F(DockerWarmPool, CheckingAConfigurationMakesNone) {
  const test::TemporaryDirectory directory("/var/tmp");
  const std::string file =
      directory.file("isogate.yaml", options(wish(2)).yaml + "state_dir: " + directory.path() + "/state\n");
  const auto checked = test::run_isogate({"config", "check", file},
                                         {.env = {{"DOCKER_HOST", std::getenv("ISOGATE_TEST_DOCKER")}}});
  EXPECT_EQ(checked.exit_code, 0) << checked.err << checked.out;
  EXPECT_TRUE(all().empty());
}

}  // namespace
}  // namespace isogate::docker
