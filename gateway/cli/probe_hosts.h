// Probing without a gateway: the configured backend hosts are started as the supervisor would start them,
// in a state directory of their own that is removed again, and asked once.
#pragma once

#include <optional>
#include <vector>

#include "gateway/config/config.h"
#include "gateway/front/sandboxes/select.h"

namespace isogate::cli {

struct ProbedBackend {
  BackendConfig config;
  std::optional<ipc::Hello> hello;
  front::Candidate candidate;
  std::optional<std::string> setting;  // of the backend, when it is down because that is wrong
};

// In the configured order. Three attempts, 2 s apart, under require_remote. A backend that cannot be started
// or asked is no error but a candidate that is down, with the reason. [main]
Result<std::vector<ProbedBackend>> probe_backends(const Config& config);

// The same without the question: whether each backend's host gets ready, which tries its plugin file and its
// configuration. One whose plugin is not installed has state kFailed and no setting.
Result<std::vector<ProbedBackend>> try_backends(const Config& config);

}  // namespace isogate::cli
