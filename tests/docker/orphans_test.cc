// What a lost state directory leaves on an Engine, and how a gateway with another one lists and removes it.
#include <filesystem>

#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Orphans : public OnEngine {
 protected:
  static std::string id_of(char letter) { return "isg-" + std::string(26, letter); }
  Json labels(const std::string& sandbox, const std::string& instance) const {
    return labels_of({instance, "docker", sandbox}, "sandbox");
  }
  std::string container(const std::string& sandbox, const std::string& instance) {
    return create({{"Labels", labels(sandbox, instance)}});
  }
  std::string volume(const std::string& sandbox) const {
    const std::string name = new_name();
    engine_->create_volume(name, {{"Labels", labels(sandbox, instance_)}}, usual());
    return name;
  }
  std::string network(const std::string& sandbox) const {
    return engine_->create_network(new_name(), {{"Labels", labels(sandbox, instance_)}, {"Internal", true}},
                                   usual());
  }
  static test::Answer ask(const test::Gateway& gateway, const std::string& method,
                          const std::string& target) {
    return test::answer_of(test::http_call(gateway.unix_url(), method, target));
  }
  static test::ProgramResult cli(const test::Gateway& gateway, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--state-dir", gateway.state_dir()});
    return test::run_isogate(std::move(arguments));
  }
};

TEST_F(Orphans, AreWhatNoSandboxOfTheStateDirectoryClaims) {
  const std::string lost = container(id_of('a'), instance_);
  const std::string strange = container(id_of('a'), instance_ + "-other");
  const std::string lost_volume = volume(id_of('a')), runners = volume("-");
  const std::string lost_network = network(id_of('a'));
  test::Gateway gateway(options("warm_pool: 1"));
  const test::Caller agent(gateway, "agent");
  agent.run("echo x");
  EXPECT_TRUE(test::eventually(60, [&] { return containers("sandbox").size() == 2u + 1u; }))
      << "one is ready";

  const auto listed = ask(gateway, "GET", "/orphans");
  ASSERT_TRUE(test::succeeded(listed)) << listed.text;
  EXPECT_EQ(listed.body.at("orphans").size(), 3u) << listed.text;
  EXPECT_TRUE(listed.body.at("unknown").empty()) << listed.text;
  for (const std::string& one : {"container " + lost, "network " + lost_network, "volume " + lost_volume})
    EXPECT_THAT(listed.text, HasSubstr(one));
  const auto shown = cli(gateway, {"sandbox", "ls", "--orphans"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr(lost));

  for (const auto& [method, target] :
       {std::pair{"GET", std::string("/orphans")}, {"DELETE", "/orphans/" + id_of('a')}})
    EXPECT_TRUE(test::refused(agent.call(method, target), 403, "permission_denied")) << "a key is a tenant's";
  EXPECT_TRUE(test::refused(ask(gateway, "DELETE", "/orphans/" + id_of('b')), 404, "sandbox_not_found"));
  EXPECT_TRUE(test::refused(ask(gateway, "DELETE", "/orphans/" + id_of('a') + "?backend=none"), 400,
                            "invalid_request"));
  EXPECT_EQ(ask(gateway, "GET", "/orphans").body.at("orphans").size(), 3u) << "nothing was removed";

  const auto removed = cli(gateway, {"sandbox", "rm", "--orphan", id_of('a')});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_EQ(ask(gateway, "GET", "/orphans").body.at("orphans").size(), 0u);
  engine_->inspect(strange, usual());
  engine_->inspect(runners, usual(), ObjectKind::kVolume);
  EXPECT_EQ(agent.out("echo still here"), "still here\n");
  EXPECT_THAT(gateway.log(), HasSubstr("orphans_removed"));
}

TEST_F(Orphans, ThatRunStayUnlessTheyAreMeant) {
  const std::string runs = run({{"Labels", labels(id_of('a'), instance_)}});
  const std::string its = volume(id_of('a'));
  test::Gateway gateway(options(""));
  const auto refusal = ask(gateway, "DELETE", "/orphans/" + id_of('a'));
  EXPECT_TRUE(test::refused(refusal, 400, "invalid_request"));
  EXPECT_THAT(refusal.text, HasSubstr("running=true (--running)"));
  EXPECT_EQ(engine_->inspect(runs, usual()).at("State").at("Running"), true);
  engine_->inspect(its, usual(), ObjectKind::kVolume);
  EXPECT_TRUE(test::succeeded(ask(gateway, "DELETE", "/orphans/" + id_of('a') + "?running=true")));
  EXPECT_EQ(ask(gateway, "GET", "/orphans").body.at("orphans").size(), 0u);
}

// The agent has returned, with the same id, before anybody looked: its old container does not belong to the
// new record.
TEST_F(Orphans, IsTheContainerThatAnAgentHadBeforeItsStateWasLost) {
  auto before = options("");
  before.yaml += "on_shutdown: keep\n";
  std::string old_container;
  {
    test::Gateway first(before);
    test::Caller(first, "agent").run("sleep 1000 & echo x");
    old_container = only("sandbox").at("Id");
  }
  test::Gateway gateway(options(""));  // another state directory
  const test::Caller agent(gateway, "agent");
  agent.run("echo y > kept");
  const auto listed = ask(gateway, "GET", "/orphans");
  ASSERT_EQ(listed.body.at("orphans").size(), 1u) << listed.text;
  const Json one = listed.body.at("orphans")[0];
  EXPECT_EQ(one.at("object"), "container " + old_container);
  EXPECT_EQ(one.at("running"), true);
  EXPECT_EQ(one.value("agent_id", ""), "agent");
  const auto removed =
      cli(gateway, {"sandbox", "rm", "--orphan", "--running", one.at("sandbox_id").get<std::string>()});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_NE(only("sandbox").at("Id"), old_container);
  EXPECT_EQ(agent.content("kept"), "y\n");
}

// No call of the agent comes: nothing of its own runs, and its old container is not mistaken for it.
TEST_F(Orphans, IsTheOldContainerOfAnAgentThatIsStopped) {
  auto before = options("");
  before.yaml += "on_shutdown: keep\n";
  {
    test::Gateway first(before);
    test::Caller(first, "agent").run("echo x");
  }
  const std::string old_container = only("sandbox").at("Id");
  test::Gateway gateway(options(""));
  const test::Caller agent(gateway, "agent");
  agent.run("echo y > kept");
  EXPECT_TRUE(test::succeeded(agent.call("DELETE", "/sandboxes/agent")));
  const auto listed = ask(gateway, "GET", "/orphans");
  ASSERT_EQ(listed.body.at("orphans").size(), 1u) << listed.text;
  const std::string id = listed.body.at("orphans")[0].at("sandbox_id");
  EXPECT_EQ(listed.body.at("orphans")[0].at("object"), "container " + old_container);
  EXPECT_TRUE(test::succeeded(ask(gateway, "DELETE", "/orphans/" + id + "?running=true")));
  EXPECT_EQ(agent.content("kept"), "y\n");
}

TEST_F(Orphans, AreReportedWhenTheAgentIsOnAnotherBackend) {
  const std::string mine = id_of('q');
  volume(mine);
  test::Gateway gateway(options(""));
  const fs::path sandbox = fs::path(gateway.state_dir()) / "sandboxes" / mine;
  fs::create_directory(sandbox);
  const auto whose = [&](const std::string& backend) {
    test::run_program({"bash", "-c", "printf %s " + backend + " > " + (sandbox / "backend").string()});
    return ask(gateway, "GET", "/orphans").body.at("orphans").size();
  };
  EXPECT_EQ(whose("docker"), 0u);
  EXPECT_EQ(whose("other"), 1u);
}

TEST_F(Orphans, IsTheVolumeThatKeepsAnAgentOutUntilItIsRemoved) {
  auto before = options("workspace: volume");
  before.yaml += "on_shutdown: keep\n";
  {
    test::Gateway first(before);
    test::Caller(first, "agent").run("echo x > lost");
  }
  test::Gateway gateway(options("workspace: volume"));
  const test::Caller agent(gateway, "agent");
  const auto refusal = agent.exec("true");
  EXPECT_EQ(refusal.status, 503) << refusal.text;
  const auto listed = ask(gateway, "GET", "/orphans");
  ASSERT_EQ(listed.body.at("orphans").size(), 3u) << "its container, /etc and workspace: " << listed.text;
  EXPECT_THAT(listed.text, HasSubstr("\"volume isg-"));
  const std::string id = listed.body.at("orphans")[0].at("sandbox_id");
  EXPECT_TRUE(test::succeeded(ask(gateway, "DELETE", "/orphans/" + id + "?running=true")));
  EXPECT_EQ(agent.out("ls"), "");
}

TEST_F(Orphans, AreNotReportedWhenAnySandboxCannotBeInspected) {
  container(id_of('a'), instance_);
  test::Gateway gateway(options(""));
  const fs::path damaged = fs::path(gateway.state_dir()) / "sandboxes" / id_of('x');
  fs::create_symlink("/nowhere", damaged);
  const auto listed = ask(gateway, "GET", "/orphans");
  EXPECT_TRUE(listed.body.at("orphans").empty()) << listed.text;
  EXPECT_EQ(listed.body.at("unknown").size(), 1u) << listed.text;
  EXPECT_THAT(listed.text, HasSubstr("what the sandbox " + id_of('x') + " claims is not known"));
  EXPECT_TRUE(test::refused(ask(gateway, "DELETE", "/orphans/" + id_of('a')), 503, "backend_unavailable"));
  EXPECT_NE(cli(gateway, {"sandbox", "ls", "--orphans"}).exit_code, 0);
  fs::remove(damaged);
  EXPECT_EQ(ask(gateway, "GET", "/orphans").body.at("orphans").size(), 1u);
}

}  // namespace
}  // namespace isogate::docker
