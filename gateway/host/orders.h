// The supervisor's orders to a backend host: records of its control socket. nlohmann/json stays in the
// source. Pure.
#pragma once

#include <optional>
#include <string>

#include "gateway/config/config.h"
#include "gateway/host/instance.h"

namespace isogate {

struct HostOrder {
  Config config;
  BackendConfig backend;  // the one of them to serve
  uint64_t generation = 0;
  HostPaths places;
  std::string copy_dir;
};
Result<HostOrder> parse_start(const std::string& record);

// How to close sandboxes. Nothing: it is neither `stop` nor `mode`.
struct CloseOrder {
  uint32_t mode;  // ISOGATE_CLOSE_*
  bool now;       // or only once the front has ended
};
std::optional<CloseOrder> parse_close(const std::string& record);

}  // namespace isogate
