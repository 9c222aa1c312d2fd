// Whether packets of a sandbox get out, tried from inside by our own program before the first command of a
// tenant: a NetworkPolicy is a wish that a cluster's network may ignore without a word.
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

// The API server's addresses, where it goes by a name all that it has.
struct ApiServers {
  std::vector<std::string> addresses;
  uint16_t port = 0;
};

// A node, as its kubelets may be reached: `ports` beside those of the configuration.
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

// A policy may be in force late, and so may what lets packets out: rounds, their beginnings `apart` at least,
// until two in a row were silent, one could not be tried, or something has answered for `most`. The last one.
Ran settle(const std::function<Ran()>& ask, std::chrono::milliseconds apart, std::chrono::milliseconds most);

// Throws ISOGATE_UNAVAILABLE when something answers for five seconds, and when it could not be tried; where
// allow_unenforced_network is written, warns instead of the former.
void prove_no_way_out(Services& services, sdk::RunnerLink& link, const PodState& pod, const sdk::Call& call);

}  // namespace isogate::k8s
