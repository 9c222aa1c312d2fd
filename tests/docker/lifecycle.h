// What becomes of the containers of a gateway's agents.
#pragma once

#include "tests/docker/gateways.h"

namespace isogate::docker {

using test::Answer;
using test::Caller;
using test::eventually;
using test::ExecStream;
using test::Gateway;
using test::GatewayOptions;

class Lifecycle : public OnEngine {
 protected:
  GatewayOptions options(const std::string& more = {}, const std::string& config = {}) const {
    return OnEngine::options(config, more);
  }
  // The containers of this gateway's sandbox of that agent.
  std::vector<Json> containers_of(const Gateway& gateway, const std::string& agent) {
    const Answer answer = Caller(gateway, agent).get("/sandboxes");
    for (const Json& row : answer.body.at("sandboxes"))
      if (row.at("agent_id") == agent)
        return engine_->list({{kLabelSandbox, row.at("sandbox_id").get<std::string>()}}, usual());
    return {};
  }
  std::string container_of(const Gateway& gateway, const std::string& agent) {
    const auto found = containers_of(gateway, agent);
    return found.size() == 1 ? found[0].at("Id").get<std::string>()
                             : std::to_string(found.size()) + " containers";
  }
};

}  // namespace isogate::docker
