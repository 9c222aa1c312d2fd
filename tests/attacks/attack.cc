#include "tests/attacks/attack.h"

#include <cstdlib>

#include "tests/support/cluster.h"
#include "tests/support/engine.h"

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

std::string Attack::entry() {
  const std::string config = backend() == "k8s" ? ", config: {" + cluster_config() + "}" : "";
  return "{name: " + backend() + config + "}";
}

std::vector<std::pair<std::string, std::string>> Attack::engines() {
  if (engine_address().empty()) return {};
  return {{"DOCKER_HOST", engine_address()}};
}

Gateway& Attack::gateway() { return *gateway_; }

void Attack::SetUpTestSuite() {
  if (!obstacle().empty()) return;
  GatewayOptions options;
  options.yaml = isolates() ? "" : "allow_unisolated: true\n";
  options.yaml += "backends: [" + entry() + "]\nexec: {max_timeout_sec: 100}";
  if (backend() == "k8s") options.yaml += "\ninstance: attacks-" + new_mark();
  options.env = engines();
  options.env.emplace_back("GATEWAY_TOKEN", "the-gateway-s-own-secret");
  gateway_ = std::make_unique<Gateway>(options);
}

void Attack::TearDownTestSuite() { gateway_.reset(); }

void Attack::SetUp() {
  if (!gateway_) GTEST_SKIP() << obstacle();
}

void Attack::TearDown() {
  if (gateway_) expect_well(gateway(), x());
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
