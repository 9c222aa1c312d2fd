// The backend through a real gateway, on a real Engine: the containers of its agents.
#pragma once

#include "tests/docker/gateways.h"

namespace isogate::docker {

class BackendWorld : public OnEngine {
 protected:
  using OnEngine::OnEngine;
  test::GatewayOptions options(const std::string& more = {}, const std::string& config = {}) const {
    return OnEngine::options(config, more);
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
};

}  // namespace isogate::docker
