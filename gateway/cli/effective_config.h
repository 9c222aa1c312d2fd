// The configuration that a command uses: file, environment and flags, combined by gateway/config.
#pragma once

#include "gateway/cli/options.h"

namespace isogate::cli {

LoadOptions load_options(const ConfigOptions& options);

// Prints every mistake to stderr; kFailed.
int report_config(const Error& error);

}  // namespace isogate::cli
