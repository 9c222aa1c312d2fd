// Whether packets of a sandbox get out, tried from inside by our own program before the first command of a
// tenant: a NetworkPolicy is a request that a cluster's network may silently ignore.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plugins/common/run_own.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// The API server's addresses; if it is given by name, all of that name's addresses.
struct ApiServers {
  std::vector<std::string> addresses;
  uint16_t port = 0;
};

// A node and the ports of its kubelet: `ports` in addition to those of the configuration.
struct Node {
  std::string ip;
  std::vector<uint16_t> ports;
};

// The port of its kubelet that a node's own object names; 0: it names none. Pure.
uint16_t kubelet_port_of(const nlohmann::json& node);

// What must not answer, for `isogate-runner reach`. Empty: nothing is denied.
std::vector<std::string> targets_of(const Config& config, const ApiServers& servers, const Node& node);

// "10.0.0.1:443 (connected), …" of what was not silent in a round's output, each address once.
std::string what_answers(const std::string& text);

// A policy may take effect late, and so may one that lets packets out. It runs rounds, with starts at least
// `apart`, until two in a row were silent, one could not be tried, or something has answered for `most`.
// Returns the last round.
Ran settle(const std::function<Ran()>& ask, std::chrono::milliseconds apart,
           std::chrono::milliseconds answers_most, std::chrono::milliseconds untried_most,
           const sdk::Call& call);

// Throws ISOGATE_UNAVAILABLE when something answers for five seconds, and when it could not be tried. With
// allow_unenforced_network, an answer is only a warning.
void prove_no_way_out(Services& services, sdk::RunnerLink& link, const PodState& pod, const sdk::Call& call);

}  // namespace isogate::k8s
