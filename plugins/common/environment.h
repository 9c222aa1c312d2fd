// Environment variables, where a backend looks for the configuration of a client.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace isogate {

// Looks a variable up; nothing when it is unset.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

// The environment of this process. A backend host has neither HOME nor XDG_RUNTIME_DIR: they get their
// usual values.
Environment variables_of_process();

// An empty variable counts as unset.
std::optional<std::string> value_of(const Environment& environment, const std::string& name);

}  // namespace isogate
