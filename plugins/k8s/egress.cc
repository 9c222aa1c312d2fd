#include "plugins/k8s/egress.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "plugins/k8s/profile.h"
#include "plugins/k8s/transport.h"
#include "runner/fd.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSettle{5'000}, kApart{250}, kNames{5'000};
constexpr int kSilentRounds = 2;
constexpr size_t kMostServers = 8;
constexpr int kNothingAnswers = 0, kSomethingAnswers = 10;  // of `isogate-runner reach`

std::string at(const std::string& host, const std::string& port) {
  return host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
}

Round ask(sdk::RunnerLink& link, const std::vector<std::string>& targets, const sdk::Call& call) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) sdk::fail_with_errno("cannot make a pipe", errno);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  std::vector<isogate_str> argv = {sdk::str(kRunner), sdk::str("reach")};
  for (const std::string& each : targets) argv.push_back(sdk::str(each));
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.argv = argv.data();
  request.argc = argv.size();
  request.stdin_fd = request.stderr_fd = request.control_fd = -1;
  request.stdout_fd = writer.get();
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  link.exec(call, request, result);
  writer.reset();
  char text[4096];
  const ssize_t size = ::read(reader.get(), text, sizeof text);
  const bool exited = result.term_signal == 0 && (result.flags & ISOGATE_RESULT_NOT_STARTED) == 0;
  return {exited ? result.exit_code : -1, std::string(text, size > 0 ? static_cast<size_t>(size) : 0)};
}

// What cannot be resolved cannot be tried. Behind a proxy its name may be known to that alone.
ApiServers servers_of(Services& services, const sdk::Call& call) {
  const ClusterAccess& access = services.api.access();
  ApiServers servers{{}, access.port};
  if (services.config.open_network || !services.config.egress_to.empty()) return servers;
  try {
    servers.addresses = addresses_of(access.host, Budget(call, kNames));
  } catch (const ApiError& error) {
    if (!access.proxy || error.status() == ISOGATE_CANCELLED) throw;
    services.warn_once("sandboxes are not tried against the API server: " + std::string(error.what()));
  }
  if (servers.addresses.size() > kMostServers) servers.addresses.resize(kMostServers);
  return servers;
}

// Where these credentials may not get nodes the configuration's ports are all that is known.
Node node_of(Services& services, const PodState& pod, const sdk::Call& call) {
  Node node{pod.node_ip, {}};
  if (pod.node.empty() || services.config.open_network || !services.config.egress_to.empty()) return node;
  try {
    const uint16_t port = kubelet_port_of(services.api.get({"v1", "", "nodes", pod.node}, call));
    if (port != 0) node.ports.push_back(port);
  } catch (const ApiError& error) {
    if (error.http_status() != 403 && error.status() != ISOGATE_NOT_FOUND) throw;
  }
  return node;
}

}  // namespace

std::string what_answers(const std::string& text) {
  std::string found;
  std::set<std::string> told;  // the first hop may be the node
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.ends_with(" silent")) continue;
    if (!told.insert(line.substr(0, space)).second) continue;
    found += (found.empty() ? "" : ", ") + line.substr(0, space) + " (" + line.substr(space + 1) + ")";
  }
  return printable(found);
}

uint16_t kubelet_port_of(const Json& node) try {
  const int64_t port = node.at("status").at("daemonEndpoints").at("kubeletEndpoint").at("Port");
  return port > 0 && port < 65536 ? static_cast<uint16_t>(port) : 0;
} catch (const Json::exception&) {
  return 0;
}

std::vector<std::string> targets_of(const Config& config, const ApiServers& servers, const Node& node) {
  if (config.open_network) return {};
  std::vector<std::string> targets = {"169.254.169.254:80"};
  targets.insert(targets.end(), config.must_not_reach.begin(), config.must_not_reach.end());
  if (!config.egress_to.empty()) return targets;  // the rest may be among what is allowed
  std::set<uint16_t> ports(config.kubelet_ports.begin(), config.kubelet_ports.end());
  ports.insert(node.ports.begin(), node.ports.end());
  for (const uint16_t port : ports) {
    targets.push_back(at("hop", std::to_string(port)));
    if (!node.ip.empty()) targets.push_back(at(node.ip, std::to_string(port)));
  }
  for (const std::string& each : servers.addresses) {
    const bool loopback = each.starts_with("127.") || each == "::1";
    if (!loopback) targets.push_back(at(each, std::to_string(servers.port)));
  }
  return targets;
}

Round settle(const std::function<Round()>& ask, milliseconds apart, milliseconds most) {
  const auto until = Clock::now() + most;
  auto next = Clock::now();
  for (int silent = 0;; std::this_thread::sleep_until(next)) {
    next = Clock::now() + apart;
    Round round = ask();
    silent = round.exit_code == kNothingAnswers ? silent + 1 : 0;
    if (silent == kSilentRounds) return round;
    if (silent > 0) continue;
    if (round.exit_code != kSomethingAnswers || Clock::now() >= until) return round;
  }
}

void prove_no_way_out(Services& services, sdk::RunnerLink& link, const PodState& pod, const sdk::Call& call) {
  const auto targets = targets_of(services.config, servers_of(services, call), node_of(services, pod, call));
  if (targets.empty()) return;
  const bool tolerated = services.config.allow_unenforced_network;
  const auto once = [&] {
    call.check();
    return ask(link, targets, call);
  };
  const Round last = settle(once, kApart, tolerated ? milliseconds(0) : kSettle);
  if (last.exit_code == kNothingAnswers) return;
  if (last.exit_code != kSomethingAnswers)
    throw sdk::Error(ISOGATE_UNAVAILABLE,
                     "whether packets of the sandbox get out could not be tried: exit code " +
                         std::to_string(last.exit_code));
  const std::string why =
      "packets of sandboxes get out, although a NetworkPolicy denies it: " + what_answers(last.text) +
      " answered";
  if (!tolerated)
    throw sdk::Error(ISOGATE_UNAVAILABLE,
                     why +
                         ". Use a network that enforces policies (Calico, Cilium, …), or write "
                         "allow_unenforced_network: true");
  services.warn_once(why + "; served all the same: allow_unenforced_network");
}

}  // namespace isogate::k8s
