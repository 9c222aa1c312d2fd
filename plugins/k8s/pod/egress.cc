#include "plugins/k8s/pod/egress.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/loopback.h"
#include "lib/net/transport.h"
#include "lib/text.h"
#include "plugins/common/wait_for.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/profile.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSettle{5'000}, kApart{250}, kLookUp{5'000};
constexpr int kSilentRounds = 2;
constexpr size_t kMostServers = 8;
constexpr int kNothingAnswers = 0, kSomethingAnswers = 10, kUntried = 11;  // of `isogate-runner reach`

// A name that cannot be resolved cannot be tried. Behind a proxy only the proxy may know it.
ApiServers servers_of(Services& services, const sdk::Call& call) {
  const ClusterAccess& access = services.api.access();
  ApiServers servers{{}, access.port};
  if (services.config.open_network || !services.config.egress_to.empty()) return servers;
  try {
    servers.addresses = net::addresses_of(access.host, Budget(call, kLookUp));
  } catch (const NetError& error) {
    if (!access.proxy || error.status() == ISOGATE_CANCELLED) throw;
    services.warn_once("sandboxes are not tried against the API server: " + std::string(error.what()));
  }
  if (servers.addresses.size() > kMostServers) servers.addresses.resize(kMostServers);
  return servers;
}

// If these credentials may not get nodes, only the configuration's ports are known.
Node node_of(Services& services, const PodState& pod, const sdk::Call& call) {
  Node node{pod.node_ip, {}};
  if (pod.node.empty() || services.config.open_network || !services.config.egress_to.empty()) return node;
  try {
    const uint16_t port = kubelet_port_of(services.api.get({"v1", "", "nodes", pod.node}, call));
    if (port != 0) node.ports.push_back(port);
  } catch (const NetError& error) {
    if (error.http_status() != 403 && error.status() != ISOGATE_NOT_FOUND) throw;
  }
  return node;
}

}  // namespace

std::string what_answers(const std::string& text) {
  std::string found;
  std::set<std::string> seen;  // the first hop may be the node
  for (const std::string_view each : split(text, '\n')) {
    const std::string line(each);
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.ends_with(" silent")) continue;
    if (!seen.insert(line.substr(0, space)).second) continue;
    found += (found.empty() ? "" : ", ") + line.substr(0, space) + " (" + line.substr(space + 1) + ")";
  }
  return one_line(found);
}

uint16_t kubelet_port_of(const Json& node) {
  const Json& endpoints = member(member(node, "status"), "daemonEndpoints");
  const Json& port = member(member(endpoints, "kubeletEndpoint"), "Port");
  const uint64_t number = port.is_number_integer() ? port.get<uint64_t>() : 0;
  return number < 65536 ? static_cast<uint16_t>(number) : 0;
}

std::vector<std::string> targets_of(const Config& config, const ApiServers& servers, const Node& node) {
  if (config.open_network) return {};
  std::vector<std::string> targets = {"169.254.169.254:80"};
  targets.insert(targets.end(), config.must_not_reach.begin(), config.must_not_reach.end());
  if (!config.egress_to.empty()) return targets;  // the other addresses may be allowed
  std::set<uint16_t> ports(config.kubelet_ports.begin(), config.kubelet_ports.end());
  ports.insert(node.ports.begin(), node.ports.end());
  for (const uint16_t port : ports) {
    targets.push_back(join_address("hop", std::to_string(port)));
    if (!node.ip.empty()) targets.push_back(join_address(node.ip, std::to_string(port)));
  }
  for (const std::string& each : servers.addresses)
    if (!is_loopback(each)) targets.push_back(join_address(each, std::to_string(servers.port)));
  return targets;
}

Ran settle(const std::function<Ran()>& ask, milliseconds apart, milliseconds answers_most,
           milliseconds untried_most, const sdk::Call& call) {
  const auto begun = Clock::now();
  for (int silent = 0;;) {
    const auto next = Clock::now() + apart;
    Ran round = ask();
    silent = round.exit_code == kNothingAnswers ? silent + 1 : 0;
    if (silent == kSilentRounds) return round;
    const milliseconds patience = round.exit_code == kSomethingAnswers ? answers_most
                                  : round.exit_code == kUntried        ? untried_most
                                                                       : milliseconds(0);
    if (silent == 0 && Clock::now() - begun >= patience) return round;
    sleep_for(std::chrono::ceil<milliseconds>(std::max(next - Clock::now(), Clock::duration::zero())), call);
  }
}

void prove_no_way_out(Services& services, sdk::RunnerLink& link, const PodState& pod, const sdk::Call& call) {
  const auto targets = targets_of(services.config, servers_of(services, call), node_of(services, pod, call));
  if (targets.empty()) return;
  std::vector<std::string> command = {kRunner, "reach"};
  command.insert(command.end(), targets.begin(), targets.end());
  const bool tolerated = services.config.allow_unenforced_network;
  const auto once = [&] { return run_own(link, command, call); };
  const Ran last = settle(once, kApart, tolerated ? milliseconds(0) : kSettle, kSettle, call);
  if (last.exit_code == kNothingAnswers) return;
  if (last.exit_code != kSomethingAnswers)
    unavailable("whether packets of the sandbox get out could not be tried: exit code " +
                std::to_string(last.exit_code) + " " + what_answers(last.out));
  const std::string why =
      "packets of sandboxes get out, although a NetworkPolicy denies it: " + what_answers(last.out) +
      " answered";
  if (!tolerated)
    unavailable(why +
                ". Use a network that enforces policies (Calico, Cilium, …), or write "
                "allow_unenforced_network: true");
  services.warn_once(why + "; served all the same: allow_unenforced_network");
}

}  // namespace isogate::k8s
