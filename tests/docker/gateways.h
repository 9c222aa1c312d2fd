// Gateways on a real Engine, and the containers of their agents: each test has its own instance, and what it
// leaves is removed at its end.
#pragma once

#include <gmock/gmock.h>

#include "plugins/docker/container/profile.h"
#include "tests/docker/engines.h"
#include "tests/support/api.h"
#include "tests/support/gateway.h"

namespace isogate::docker {

class OnEngine : public SharedEngine {
 protected:
  explicit OnEngine(const char* variable = "ISOGATE_TEST_DOCKER", const char* script = "docker.sh")
      : SharedEngine(variable, script), instance_(new_name()) {}
  void TearDown() override {
    if (engine_ != nullptr) {
      for (const Json& left : engine_->list({{kLabelInstance, instance_}}, usual()))
        engine_->remove(left.at("Id"), usual());
      for (const Json& left : engine_->list({{kLabelInstance, instance_}}, usual(), ObjectKind::kVolume))
        engine_->remove(left.at("Name"), usual(), ObjectKind::kVolume);
    }
    SharedEngine::TearDown();
  }

  // `config`: members of the backend's `config`, in YAML's flow style; `more`: other settings of the gateway;
  // `backend`: of the backend.
  test::GatewayOptions options(const std::string& config = {}, const std::string& more = {},
                               const std::string& backend = {}) const {
    test::GatewayOptions options;
    options.yaml = more + "\ninstance: " + instance_ + "\nbackends:\n  - name: docker\n" +
                   (backend.empty() ? "" : "    " + backend + "\n") + "    config: {image: \"" + image_ +
                   "\"" + (config.empty() ? "" : ", " + config) + "}\n";
    options.env = {{"DOCKER_HOST", std::getenv(variable_)}};
    return options;
  }
  // The same for gateways that follow each other on one state directory.
  test::GatewayOptions lasting(const std::string& config = {}, const std::string& more = {}) const {
    test::GatewayOptions lasting = options(config, more);
    lasting.state_dir = state_.path();
    return lasting;
  }

  // Of all sandboxes of this test's gateways.
  std::vector<Json> containers(const std::string& role) const {
    return engine_->list({{kLabelInstance, instance_}, {kLabelRole, role}}, usual());
  }
  // The only one of that role, inspected.
  Json only(const std::string& role) const {
    const auto found = containers(role);
    EXPECT_EQ(found.size(), 1u) << role;
    return found.size() == 1 ? engine_->inspect(found[0].at("Id"), usual()) : Json();
  }
  // The containers of this gateway's sandbox of that agent.
  std::vector<Json> containers_of(const test::Gateway& gateway, const std::string& agent) const {
    const test::Answer answer = test::Caller(gateway, agent).get("/sandboxes");
    for (const Json& row : answer.body.at("sandboxes"))
      if (row.at("agent_id") == agent)
        return engine_->list({{kLabelSandbox, row.at("sandbox_id").get<std::string>()}}, usual());
    return {};
  }
  std::string container_of(const test::Gateway& gateway, const std::string& agent) const {
    const auto found = containers_of(gateway, agent);
    return found.size() == 1 ? found[0].at("Id").get<std::string>()
                             : std::to_string(found.size()) + " containers";
  }
  // The container of agent `a`, once a gateway has run that in it and has ended.
  std::string left_by(const test::GatewayOptions& options, const std::string& command) const {
    test::Gateway gateway(options);
    test::Caller(gateway, "a").run(command);
    const std::string container = container_of(gateway, "a");
    gateway.stop();
    return container;
  }
  size_t volumes() const {
    return engine_->list({{kLabelInstance, instance_}}, usual(), ObjectKind::kVolume).size();
  }

  // What docker's client writes; it must succeed.
  std::string docker(const std::vector<std::string>& arguments) const {
    std::vector<std::string> argv{"docker", "-H", std::getenv(variable_)};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    const auto ran = test::run_program(argv);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.out;
  }

  // What an operator reads about an unavailable backend.
  static std::string detail_of(const test::Gateway& gateway) {
    std::string text;
    const bool told = test::eventually(20, [&] {
      text = test::Caller(gateway, "a").get("/backends").text;
      return text.find("\"unavailable\"") != std::string::npos;
    });
    EXPECT_TRUE(told) << text;
    return text;
  }

  // What a tenant reads in a refusal.
  static std::string refusal_of(const test::Caller& caller) {
    const test::Answer answer = caller.exec("true");
    EXPECT_EQ(answer.status, 503) << answer.text;
    return answer.text;
  }

  const std::string instance_;
  const test::TemporaryDirectory state_{"/var/tmp"};
  std::string image_ = "isogate-test:base";
};

// The same with an image of the test's own.
class OnOwnImage : public OnEngine {
 protected:
  void SetUp() override {
    OnEngine::SetUp();
    image_ = "isogate-test:" + instance_;
  }
  void TearDown() override {
    OnEngine::TearDown();
    if (engine_ != nullptr) shell("docker image rm -f " + image_);
  }
  // `small`, after a script has run in its root directory.
  void import(const std::string& script) const {
    const test::TemporaryDirectory work;
    shell("docker image rm -f " + image_ + " 2> /dev/null || true; cd " + work.path() +
          "; mkdir root; id=$(docker create isogate-test:small sh); docker export $id | tar -x -C root; "
          "docker rm $id > /dev/null; (cd root; " +
          script + "); tar -c -C root . | docker import - " + image_ + " > /dev/null");
  }

 private:
  void shell(const std::string& script) const {
    const auto ran = test::run_program({"bash", "-c", "set -euo pipefail; " + script},
                                       {"", {{"DOCKER_HOST", std::getenv(variable_)}}, 60});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
  }
};

}  // namespace isogate::docker
