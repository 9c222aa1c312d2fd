// What the configuration needs of the Engine and of this host before a container can be made.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugins/docker/services.h"

namespace isogate::docker {

// Empty: all is there. Else what is missing, with the remedy, for the probe: it may name paths of this host.
// Throws EngineError where the Engine cannot be asked.
std::string why_not(Services& services, const EngineInfo& info, const Budget& budget);

// What the Engine says of the image of one sandbox. Throws ISOGATE_UNSUPPORTED where it is not there, or of
// another platform than is configured.
nlohmann::json require_image(Services& services, const std::string& name, const Budget& budget);

}  // namespace isogate::docker
