// What a reload may change, and what waits for a restart.
#pragma once

#include <string>
#include <vector>

#include "gateway/supervisor/context.h"
#include "gateway/supervisor/listeners.h"

namespace isogate::supervisor {

// The SHA-256 of the local key, empty when keys are configured; or why this configuration must not be taken
// over by a gateway with these listeners.
Result<std::string> check_reload(const Config& config, const Context& context,
                                 const std::vector<Listener>& listeners);

// `config` with the settings of `running` that only a start can change; each that differs is logged.
Config with_fixed_settings(Config config, const Config& running);

}  // namespace isogate::supervisor
