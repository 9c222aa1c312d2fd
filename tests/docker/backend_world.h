// The backend through a real gateway, on a real Engine.
#pragma once

#include <string>
#include <vector>

#include "plugins/docker/profile.h"
#include "tests/docker/engines.h"
#include "tests/support/api.h"
#include "tests/support/gateway.h"

namespace isogate::docker {

class BackendWorld : public SharedEngine {
 protected:
  // Each has an instance of its own, and with it sandboxes that nobody else's names meet.
  explicit BackendWorld(const char* variable = "ISOGATE_TEST_DOCKER", const char* script = "docker.sh")
      : SharedEngine(variable, script), instance_(new_name()) {}
  void TearDown() override {
    if (engine_ != nullptr)
      for (const Json& left : engine_->list({{kLabelInstance, instance_}}, usual()))
        engine_->remove(left.at("Id"), true, true, usual());
    SharedEngine::TearDown();
  }
  test::GatewayOptions options(const std::string& more = {}, const std::string& config = {}) {
    test::GatewayOptions options;
    options.yaml = more + "\ninstance: " + instance_ +
                   "\nbackends:\n  - name: docker\n    config: {image: \"isogate-test:base\"" +
                   (config.empty() ? "" : ", " + config) + "}\n";
    options.env = {{"DOCKER_HOST", std::getenv(variable_)}};
    return options;
  }
  // The containers of this gateway's sandbox of that agent.
  std::vector<Json> containers_of(const test::Gateway& gateway, const std::string& agent) {
    const test::Answer answer = test::Caller(gateway, agent).get("/sandboxes");
    for (const Json& row : answer.body.at("sandboxes"))
      if (row.at("agent_id") == agent)
        return engine_->list({{kLabelSandbox, row.at("sandbox_id").get<std::string>()}}, usual());
    return {};
  }
  std::string container_of(const test::Gateway& gateway, const std::string& agent) {
    const auto found = containers_of(gateway, agent);
    return found.size() == 1 ? found[0].at("Id").get<std::string>()
                             : std::to_string(found.size()) + " containers";
  }
  const std::string instance_;
};

}  // namespace isogate::docker
