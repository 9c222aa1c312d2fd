// The Status object with which an exec ends, channel 3 of the WebSocket. Values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plugins/k8s/client/exec_channel.h"

namespace isogate::k8s {

// Nothing while the Status is incomplete.
std::optional<ExecEnd> parse_exec_status(std::string_view text);

}  // namespace isogate::k8s
