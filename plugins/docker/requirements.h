// What the configuration needs of the Engine and of this host before a container can be made.
#pragma once

#include <string>

#include "plugins/docker/services.h"

namespace isogate::docker {

// Empty: all is there. Else what is missing, with the remedy, for the probe: it may name paths of this host.
// Throws EngineError where the Engine cannot be asked.
std::string why_not(Services& services, const EngineInfo& info, const Budget& budget);

}  // namespace isogate::docker
