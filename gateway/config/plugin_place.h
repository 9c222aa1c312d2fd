// Where a backend's plugin file is, and whether it is there. Any thread.
#pragma once

#include <string>

#include "gateway/config/config.h"
#include "lib/error.h"

namespace isogate {

// Its own absolute path, or NAME.so in plugin_dir.
std::string plugin_file(const Config& config, const BackendConfig& backend);

// ISOGATE_NOT_FOUND, with what to do, when the file is missing: a configuration may name more than is
// installed. ISOGATE_INVALID_ARGUMENT when the file is missing by mistake: an absolute path, a pin, a name
// much like an existing one, no plugin_dir. An existing file may still be refused.
Result<void> check_plugin_there(const Config& config, const BackendConfig& backend);

}  // namespace isogate
