// Gateways on a real cluster, for tests of single features: each test has its own instance, and what it
// leaves is removed at its end.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "plugins/k8s/client/api.h"
#include "plugins/k8s/pod/profile.h"
#include "tests/support/api.h"
#include "tests/support/cluster.h"
#include "tests/support/gateway.h"

namespace isogate::k8s {

class OnCluster : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // `config`: further members of the backend's `config`, in YAML's flow style; `more`: other settings;
  // `backend`: of the backend.
  [[nodiscard]] test::GatewayOptions options(const std::string& config = {}, const std::string& more = {},
                                             const std::string& backend = {}) const;
  // The same without test::cluster_config(), only with `config`.
  [[nodiscard]] test::GatewayOptions bare(const std::string& config) const;

  // Of this test's gateways, by the administrator; `plural`: pods, leases, …
  [[nodiscard]] std::vector<Json> all(const std::string& plural) const;
  // Without those that are being deleted; the only one of them.
  [[nodiscard]] std::vector<Json> live(const std::string& plural) const;
  [[nodiscard]] Json only(const std::string& plural) const;
  [[nodiscard]] Json pod() const { return only("pods"); }
  void expect_nothing_left() const;
  void change(const Json& pod, const Json& merged) const;  // `merged`: RFC 7396, into what it is by now
  static std::string uid_of(const Json& object) { return object.at("metadata").at("uid"); }
  static std::string name_of(const Json& object) { return object.at("metadata").at("name"); }
  static std::string id_of(const test::Caller& caller);  // of its sandbox
  void remove(const std::string& plural, const std::string& name) const;
  void let_expire(const std::string& lease) const;  // which is no longer renewed
  [[nodiscard]] static Resource resource(const std::string& plural, const std::string& name = {});
  // How long objects may stay after their end: a kubelet that missed a pod's end looks again within 90 s.
  static constexpr double kGone = 120;
  static Budget usual() { return Budget(Budget::kUsual); }

  // These options for a gateway that starts on what an earlier one left.
  static test::GatewayOptions after(const test::Gateway& earlier, test::GatewayOptions options);
  static void kill_with_host(test::Gateway& gateway);
  // An exec that has written `up` and runs that command.
  static std::unique_ptr<test::ExecStream> started(const test::Caller& me, const std::string& command);

  // What an operator reads about a backend that does not serve.
  static std::string detail_of(test::GatewayOptions options);
  // For a refused first call: what the tenant reads, and that nothing is left.
  std::string refusal_of(const test::GatewayOptions& options) const;

  // Why a test that takes a minute is not run now; empty: it is. Continuous integration limits their total
  // time.
  static std::string too_long();

  // The controller of agents.x-k8s.io; skips where it cannot run.
  static void install_agents();

  std::unique_ptr<Api> api_;
  std::string instance_;
};

}  // namespace isogate::k8s
