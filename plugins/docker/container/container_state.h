// An Engine's description of one container, as this backend uses it. Values; pure.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugins/docker/container/profile.h"

namespace isogate::docker {

struct ContainerState {
  bool exists = false, running = false, paused = false, ours = false, out_of_memory = false;
  int pid = 0;
  int64_t exit_code = 0;
  std::string id, name, started_at, shape;
  std::map<std::string, int64_t> limits;  // engine_limits()
};

// Of an answer to `inspect`. `ours`: it has exactly the labels of `owner`. Throws ISOGATE_UNAVAILABLE for
// what is not understood.
ContainerState state_of(const nlohmann::json& inspected, const Owner& owner);

}  // namespace isogate::docker
