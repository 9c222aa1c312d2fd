#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/cli/fake_gateway.h"
#include "tests/support/local_gateway.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

const std::string kHead = "plugin_dir: " ISOGATE_BUILD_DIR "/plugins\n";

struct Probed {
  int exit_code;
  Json report;
  std::string err;
  size_t left;  // of it, beside the state directory
};

Probed probe(const std::string& yaml) {
  TemporaryDirectory directory;
  auto done =
      run_isogate({"probe", "--json", "--config",
                   directory.file("c.yaml", kHead + "state_dir: " + directory.path() + "/state\n" + yaml)});
  const auto entries = std::filesystem::directory_iterator(directory.path());
  const auto left = static_cast<size_t>(std::distance(begin(entries), end(entries))) - 1;
  return {done.exit_code, Json::parse(done.out, nullptr, false), done.err, left};
}

TEST(Probe, WithoutAGatewayAnAllowedBackendIsChosen) {
  if (!local_is_built()) GTEST_SKIP() << "the plugin local is not built";
  Probed done = probe("allow_unisolated: true\nbackends: [{name: dev, plugin: local}]\n");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const Json& backend = done.report.at("backends").at(0);
  EXPECT_EQ(backend.at("name"), "dev");
  EXPECT_EQ(backend.at("plugin"), "local");
  EXPECT_EQ(backend.at("isolation"), "none");
  EXPECT_EQ(backend.at("eligible"), true);
  EXPECT_EQ(backend.at("chosen"), true);
  EXPECT_EQ(done.report.at("policy").at("allow_unisolated"), true);
  EXPECT_EQ(done.left, 0u);
}

TEST(Probe, WhatThePolicyForbidsIsNotEligible) {
  if (!local_is_built()) GTEST_SKIP() << "the plugin local is not built";
  Probed done = probe("backends: [{name: dev, plugin: local}]\n");
  EXPECT_EQ(done.exit_code, 1);
  const Json& backend = done.report.at("backends").at(0);
  EXPECT_EQ(backend.at("eligible"), false);
  EXPECT_EQ(backend.at("chosen"), false);
  EXPECT_NE(backend.at("reason").get<std::string>().find("allow_unisolated"), std::string::npos) << backend;
}

TEST(Probe, RequireRemoteRefusesEveryLocalBackend) {
  if (!local_is_built()) GTEST_SKIP() << "the plugin local is not built";
  Probed done = probe("require_remote: true\nbackends: [{name: dev, plugin: local}]\n");
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_EQ(done.report.at("backends").at(0).at("eligible"), false);
}

// A gateway passes it over, too.
TEST(Probe, WhatCannotBeCreatedIsNotAwaited) {
  if (!local_is_built()) GTEST_SKIP() << "the plugin local is not built";
  const Probed done = probe("backends: [{name: dev, plugin: local}, {name: spaces, plugin: namespace}]\n");
  const Json& backend = done.report.at("backends").at(1);
  EXPECT_EQ(backend.at("reason").get<std::string>().find("out of order for the moment"), std::string::npos)
      << backend;
}

TEST(Probe, APluginThatIsAbsentIsDownWithItsReason) {
  Probed done = probe("backends: [{name: gone, plugin: not-there}]\n");
  EXPECT_EQ(done.exit_code, 1);
  const Json& backend = done.report.at("backends").at(0);
  EXPECT_EQ(backend.at("verdict"), "down");
  EXPECT_NE(backend.at("detail").get<std::string>().find("not-there"), std::string::npos) << backend;
}

// The plugin's child would end by itself after 30 s only, the shell's after 20.
TEST(Probe, WhatAPluginForkedIsKilledAndNothingElse) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);  // what is left comes to this process
  TemporaryDirectory directory;
  const std::string how = directory.file("how", "fork_segv");
  const std::string config = directory.file("c.yaml", "backends: [{name: faulty, plugin: " ISOGATE_BUILD_DIR
                                                      "/test_plugins/faulty.so, config: {probe_file: " +
                                                          how + "}}]\n");
  const auto done =
      run_program({"/bin/sh", "-c", "sleep 20 > /dev/null 2>&1 & echo $!; exec \"$0\" probe --config \"$1\"",
                   isogate_binary(), config});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.out.find("its host ended ("), std::string::npos) << "its child has the socket: " << done.out;
  EXPECT_NE(done.err.find("processes that the backends had left were killed: 1"), std::string::npos)
      << done.err;
  const pid_t sleeps = std::stoi(done.out);
  EXPECT_EQ(::waitpid(sleeps, nullptr, WNOHANG), 0) << "what the shell started was killed";
  EXPECT_EQ(::kill(sleeps, SIGKILL), 0);
  EXPECT_EQ(::waitpid(sleeps, nullptr, 0), sleeps);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process of the plugin is left";
}

TEST(Probe, ForPeopleItMarksTheChosenOne) {
  if (!local_is_built()) GTEST_SKIP() << "the plugin local is not built";
  TemporaryDirectory directory;
  std::string config = directory.file("c.yaml", kHead +
                                                    "allow_unisolated: true\nbackends: [{name: gone, plugin: "
                                                    "not-there}, {name: dev, plugin: local}]\n");
  auto done = run_isogate({"probe", "--config", config});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_NE(done.out.find("- gone: down, not eligible\n"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("* dev: "), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("policy: require_remote false, min_isolation none, allow_unisolated true\n"),
            std::string::npos)
      << done.out;
}

TEST(Probe, BackendOptionChoosesAndOrders) {
  if (!local_is_built()) GTEST_SKIP() << "the plugin local is not built";
  TemporaryDirectory directory;
  std::string config =
      directory.file("c.yaml", kHead + "backends: [{name: a, plugin: local}, {name: b, plugin: local}]\n");
  auto done = run_isogate({"probe", "--json", "--config", config, "--backend", "b"});
  Json report = Json::parse(done.out);
  ASSERT_EQ(report.at("backends").size(), 1u) << done.err;
  EXPECT_EQ(report.at("backends").at(0).at("name"), "b");
}

TEST(Probe, ABadConfigurationIs1) {
  TemporaryDirectory directory;
  EXPECT_EQ(run_isogate({"probe", "--config", directory.file("c.yaml", "nonsense: 1\n")}).exit_code, 1);
}

TEST(Probe, ARunningGatewayIsAsked) {
  Json report = {
      {"backends", Json::array({{{"name", "x"},
                                 {"plugin", "p"},
                                 {"version", "1"},
                                 {"verdict", "available"},
                                 {"isolation", "vm"},
                                 {"locality", "cluster"},
                                 {"capabilities", Json::array({"pty"})},
                                 {"eligible", true},
                                 {"chosen", true},
                                 {"reason", "first"},
                                 {"detail", "d"},
                                 {"generation", 1},
                                 {"restarts", 0}}})},
      {"policy", {{"require_remote", true}, {"min_isolation", "vm"}, {"allow_unisolated", false}}}};
  const auto tells = [](const Json& what) {
    return [text = what.dump()](const std::string&) { return json_answer(200, text); };
  };
  FakeGateway gateway(tells(report));
  auto done = run_client(gateway.url(), {"probe"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_NE(done.out.find("* x: available, chosen\n"), std::string::npos) << done.out;
  EXPECT_EQ(gateway.requests().at(0).find("GET /backends HTTP/1.1"), 0u);
  report["backends"][0]["eligible"] = report["backends"][0]["chosen"] = false;
  FakeGateway without(tells(report));
  EXPECT_EQ(run_client(without.url(), {"probe"}).exit_code, 1);
}

TEST(Probe, InvalidAnswersAre125) {
  for (const char* body : {"", "{}", "[]", R"({"backends":[{}]})"}) {
    FakeGateway gateway([&](const std::string&) { return json_answer(200, body); });
    EXPECT_EQ(run_client(gateway.url(), {"probe"}).exit_code, 125) << body;
  }
  EXPECT_EQ(run_client("http://127.0.0.1:1", {"probe"}).exit_code, 125);
}

}  // namespace
}  // namespace isogate::test
