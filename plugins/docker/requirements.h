// The configuration's requirements of the Engine and of this host before a container can be
// created.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugins/docker/services.h"

namespace isogate::docker {

// Empty: nothing is missing. Else what is missing, with the remedy, for the probe: it may name paths of this
// host. Throws NetError if the Engine cannot be asked.
std::string why_not(Services& services, const EngineInfo& info, const Budget& budget);

// The Engine's description of the image of one sandbox. Throws ISOGATE_UNSUPPORTED if it is missing, or of
// another platform than configured.
nlohmann::json require_image(Services& services, const std::string& name, const Budget& budget);

}  // namespace isogate::docker
