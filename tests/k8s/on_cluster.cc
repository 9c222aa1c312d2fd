#include "tests/k8s/on_cluster.h"

#include <csignal>
#include <cstdlib>

#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::k8s {

using test::Caller;
using test::Gateway;
using test::GatewayOptions;

void OnCluster::SetUp() {
  if (!test::cluster_obstacle().empty()) GTEST_SKIP() << test::cluster_obstacle();
  AccessConfig access;
  access.kubeconfig = test::cluster_kubeconfig();
  access.name_space = test::kSandboxNamespace;
  api_ = std::make_unique<Api>(load_access(access));
  instance_ = "test-" + test::new_mark();
}

std::string OnCluster::too_long() {
  if (std::getenv("CI") == nullptr || std::getenv("ISOGATE_TEST_LONG") != nullptr) return "";
  return "it takes long, and CI is set: ISOGATE_TEST_LONG=1 runs it";
}

void OnCluster::install_agents() {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  const auto agents = test::run_program(
      {ISOGATE_SOURCE_DIR "/tests/engines/kubernetes.sh", "agents", test::cluster_directory()},
      {"", {}, 300});
  if (agents.exit_code == 77) GTEST_SKIP() << agents.err;
  ASSERT_EQ(agents.exit_code, 0) << agents.err;
}

void OnCluster::TearDown() {
  if (!api_) return;
  for (const char* plural : {"jobs", "sandboxclaims", "sandboxes", "pods"})
    for (const Json& each : all(plural)) remove(plural, name_of(each));
  const Json leases =
      api_->list(resource("leases"), {std::string(kLabelInstance) + "=" + instance_, "", 500}, usual());
  for (const Json& each : leases.at("items")) remove("leases", name_of(each));
}

Resource OnCluster::resource(const std::string& plural, const std::string& name) {
  const std::string group = plural == "leases"              ? "coordination.k8s.io/v1"
                            : plural == "jobs"              ? "batch/v1"
                            : plural == "sandboxes"         ? "agents.x-k8s.io/v1beta1"
                            : plural.starts_with("sandbox") ? "extensions.agents.x-k8s.io/v1beta1"
                            : plural == "networkpolicies"   ? "networking.k8s.io/v1"
                                                            : "v1";
  return {group, test::kSandboxNamespace, plural, name};
}

void OnCluster::remove(const std::string& plural, const std::string& name) const {
  try {
    api_->remove(resource(plural, name), {{"gracePeriodSeconds", 0}, {"propagationPolicy", "Background"}},
                 usual());
  } catch (const NetError& error) {
    EXPECT_EQ(error.status(), ISOGATE_NOT_FOUND) << error.what();
  }
}

GatewayOptions OnCluster::options(const std::string& config, const std::string& more,
                                  const std::string& backend) const {
  GatewayOptions options = bare(test::cluster_config() + (config.empty() ? "" : ", " + config));
  options.yaml += (backend.empty() ? "" : "    " + backend + "\n") + more + "\n";
  return options;
}

GatewayOptions OnCluster::bare(const std::string& config) const {
  GatewayOptions options;
  options.yaml =
      "instance: " + instance_ + "\nshell: /bin/sh\nbackends:\n  - name: k8s\n    config: {" + config + "}\n";
  return options;
}

std::vector<Json> OnCluster::all(const std::string& plural) const {
  std::vector<Json> found;
  try {
    const Json list =
        api_->list(resource(plural), {std::string(kLabelInstance) + "=" + instance_, "", 500}, usual());
    for (const Json& each : list.at("items"))
      if (!each.at("metadata").at("labels").contains(kLabelGateway)) found.push_back(each);
  } catch (const NetError& error) {  // a cluster may not have their CustomResourceDefinition
    if (!plural.starts_with("sandbox") || error.http_status() != 404) throw;
  }
  return found;
}

std::vector<Json> OnCluster::live(const std::string& plural) const {
  std::vector<Json> found;
  for (const Json& each : all(plural))
    if (!each.at("metadata").contains("deletionTimestamp")) found.push_back(each);
  return found;
}

Json OnCluster::only(const std::string& plural) const {
  const auto found = live(plural);
  EXPECT_EQ(found.size(), 1u) << plural;
  return found.empty() ? Json() : found[0];
}

void OnCluster::expect_nothing_left() const {
  for (const char* plural :
       {"sandboxclaims", "jobs", "sandboxes", "pods", "leases", "persistentvolumeclaims", "networkpolicies"})
    EXPECT_TRUE(test::eventually(kGone, [&] { return all(plural).empty(); })) << plural;
}

void OnCluster::let_expire(const std::string& lease) const {
  const Resource which = resource("leases", lease);
  Json now = api_->get(which, usual());
  now["spec"]["leaseDurationSeconds"] = 1;  // by the clock of who observes it
  api_->replace(which, now, usual());
}

GatewayOptions OnCluster::after(const Gateway& earlier, GatewayOptions options) {
  options.state_dir = earlier.state_dir();
  return options;
}

void OnCluster::kill_with_host(Gateway& gateway) {
  gateway.signal(SIGSTOP);  // otherwise it would notice the end of its backend host, and start another
  ::kill(test::host_of(gateway, "k8s"), SIGKILL);
  gateway.kill();
}

std::unique_ptr<test::ExecStream> OnCluster::started(const Caller& me, const std::string& command) {
  auto stream = std::make_unique<test::ExecStream>(
      me, Json{{"command", "echo up; " + command}, {"timeout_sec", 300}}, 300);
  for (const char* wanted : {"start", "stdout"})
    if (const auto event = stream->next(); !event || event->at("event") != wanted)
      throw std::runtime_error(std::string("no ") + wanted + " of an exec: " +
                               (event ? event->dump() : stream->head.body));
  return stream;
}

void OnCluster::change(const Json& pod, const Json& merged) const {
  const Resource which = resource("pods", name_of(pod));
  Json now = api_->get(which, usual());
  now.merge_patch(merged);
  now.at("metadata").erase("resourceVersion");  // the kubelet may have changed its status meanwhile
  api_->replace(which, now, usual());
}

std::string OnCluster::id_of(const Caller& caller) {
  const test::Answer answer = caller.get("/sandboxes");
  for (const Json& row : answer.body.at("sandboxes"))
    if (row.at("agent_id") == caller.agent()) return row.at("sandbox_id");
  ADD_FAILURE() << "it has no sandbox: " << answer.text;
  return "";
}

std::string OnCluster::detail_of(GatewayOptions options) {
  options.wait_ready = false;
  const Gateway gateway(options);
  std::string text;
  EXPECT_TRUE(test::eventually(20, [&] {
    text = Caller(gateway, "a").get("/backends").text;
    return text.find("\"unavailable\"") != std::string::npos;
  })) << text;
  EXPECT_TRUE(refused(Caller(gateway, "a").exec("true"), 503, "backend_unavailable"));
  return text;
}

std::string OnCluster::refusal_of(const GatewayOptions& options) const {
  const Gateway gateway(options);
  const test::Answer answer = Caller(gateway, "a").exec("true");
  EXPECT_EQ(answer.status, 503) << answer.text;
  for (const char* plural : {"pods", "leases"}) {
    EXPECT_TRUE(test::eventually(kGone, [&] { return all(plural).empty(); })) << plural << " are left";
  }
  return answer.text;
}

}  // namespace isogate::k8s
