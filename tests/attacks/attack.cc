#include "tests/attacks/attack.h"

#include <unistd.h>

#include <cstdlib>

#include "tests/support/cluster.h"
#include "tests/support/engine.h"
#include "tests/support/program.h"

namespace isogate::test {

std::unique_ptr<Gateway> Attack::gateway_;

const std::string& Attack::backend() {
  static const std::string name = [] {
    const char* chosen = ::getenv("ISOGATE_ATTACKED_BACKEND");
    return std::string(chosen == nullptr ? "local" : chosen);
  }();
  return name;
}

const std::string& Attack::obstacle() {
  static const std::string why = [] {
    if (backend() == "docker") return engine_obstacle();
    if (backend() == "k8s") return cluster_obstacle();
    if (isolates()) return namespace_obstacle();
    return is_root() ? root_gateway_obstacle() : std::string();
  }();
  return why;
}

std::string Attack::entry(const std::string& more) {
  const std::string config = backend() == "k8s" ? ", config: {" + cluster_config() + "}" : "";
  return "{name: " + backend() + config + (more.empty() ? "" : ", " + more) + "}";
}

std::vector<std::pair<std::string, std::string>> Attack::engines() {
  if (engine_address().empty()) return {};
  return {{"DOCKER_HOST", engine_address()}};
}

bool Attack::on_podman() {
  const char* engine = ::getenv("ISOGATE_TEST_ENGINE");
  return backend() == "docker" && engine != nullptr && std::string(engine) == "ISOGATE_TEST_PODMAN";
}

Gateway& Attack::gateway() { return *gateway_; }

std::unique_ptr<Gateway> Attack::another(const std::string& more, const std::string& settings) {
  GatewayOptions options;
  options.yaml = isolates() ? "" : "allow_unisolated: true\n";
  options.yaml += "backends: [" + entry(more) + "]\nexec: {max_timeout_sec: 100}\n" + settings;
  if (backend() == "k8s") options.yaml += "\ninstance: attacks-" + new_mark();
  options.env = engines();
  options.env.emplace_back("GATEWAY_TOKEN", kGatewaysSecret);
  return std::make_unique<Gateway>(options);
}

void Attack::SetUpTestSuite() {
  if (obstacle().empty()) gateway_ = another("");
}

void Attack::TearDownTestSuite() { gateway_.reset(); }

void TenantsAttack::SetUpTestSuite() {
  if (!obstacle().empty()) return;
  mine() = "e2b_" + sha256_hex("mine" + new_mark());
  theirs() = "e2b_" + sha256_hex("theirs" + new_mark());
  door() = another("", "keys:\n  - {name: mine, tenant: mine, sha256: " + sha256_hex(mine()) +
                           "}\n  - {name: theirs, tenant: theirs, sha256: " + sha256_hex(theirs()) +
                           "}\ne2b: {listen: [\"127.0.0.1:0\"], domain: sandbox.test}\n");
}

void TenantsAttack::SetUp() {
  if (!door()) GTEST_SKIP() << obstacle();
}

void Attack::SetUp() {
  if (!gateway_) GTEST_SKIP() << obstacle();
}

void Attack::TearDown() {
  if (gateway_) expect_well(gateway(), x());
}

std::string Attack::said(const Caller& who, const std::string& code, const Json& more) {
  const Json result = who.run_argv(python(code), more);
  EXPECT_EQ(result.at("exit_code"), 0) << result;
  return bytes_of(result, "stdout");
}

std::string Attack::said_here(const std::string& code) {
  const ProgramResult result = run_program(python(code));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

testing::AssertionResult Attack::denied(const Caller& who, const std::string& command) {
  const Json result = who.run(command);
  const Json& code = result.at("exit_code");
  if (result.at("outcome") == "exited" && code != 0 && code != 126 && code != 127)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "`" << command << "`: " << result;
}

std::string workspace_on_host(const Gateway& gateway, const Caller& who) {
  const Answer all = who.get("/sandboxes");
  for (const Json& row : all.body.at("sandboxes")) {
    if (row.at("agent_id") != who.agent()) continue;
    const std::string place =
        gateway.state_dir() + "/sandboxes/" + row.at("sandbox_id").get<std::string>() + "/workspace";
    if (::access(place.c_str(), F_OK) == 0) return place;
  }
  return {};
}

testing::AssertionResult kept_in(const Answer& answer) {
  if (answer.status != 400 && answer.status != 403)
    return testing::AssertionFailure() << "answered " << answer.status << " " << answer.text.substr(0, 500);
  for (const char* secret : {"root:x:0", "root:*", "/sandboxes/", "isg-"})
    if (answer.text.find(secret) != std::string::npos)
      return testing::AssertionFailure() << "`" << secret << "` is in " << answer.text;
  return refused(answer, answer.status, answer.status == 400 ? "invalid_request" : "permission_denied");
}

}  // namespace isogate::test
