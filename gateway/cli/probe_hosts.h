// Probing without a gateway: starts the configured backend hosts as the supervisor does, in a temporary
// state directory, and probes each.
#pragma once

#include <optional>
#include <vector>

#include "gateway/config/config.h"
#include "gateway/front/backends/select.h"

namespace isogate::cli {

struct ProbedBackend {
  BackendConfig config;
  std::optional<ipc::Hello> hello;
  front::Candidate candidate;
  std::optional<std::string> setting;  // of the backend, when it is down because that is wrong
};

// In the configured order. Starts all at once and asks each at most `attempts` times, 2 s apart. A backend
// that cannot be started or probed is not an error, but a candidate that is down, with the reason. One that
// stays so until a reload has state kFailed; it has no setting if its plugin is not installed, or if policy
// or this host alone forbids it. [main]
Result<std::vector<ProbedBackend>> probe_backends(const Config& config, int attempts);

// What a call that asks for nothing would get of these.
front::Decision choose(const Config& config, const std::vector<ProbedBackend>& backends);

}  // namespace isogate::cli
