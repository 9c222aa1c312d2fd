// Where a backend's plugin file is, and whether it is there. Any thread.
#pragma once

#include <string>

#include "gateway/config/config.h"
#include "lib/error.h"

namespace isogate {

// Its own absolute path, or NAME.so in plugin_dir.
std::string plugin_file(const Config& config, const BackendConfig& backend);

// ISOGATE_NOT_FOUND, with what to do, when nothing is there: a configuration may name more than is installed.
// ISOGATE_INVALID_ARGUMENT when nothing is there and that is a mistake: an absolute path, a pin, a name much
// like one that is there, no plugin_dir. What is there may still be refused.
Result<void> check_plugin_there(const Config& config, const BackendConfig& backend);

}  // namespace isogate
