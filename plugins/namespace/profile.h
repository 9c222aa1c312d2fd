// What every program of this backend gets, and what it is denied, besides its namespaces. Policy
// as data.
#pragma once

#include <memory>
#include <string>

#include "plugins/namespace/config.h"
#include "runner/enclosure/enclosure.h"

namespace isogate::ns {

// The options of a /tmp or a /dev/shm: tmpfs(5).
std::string in_memory(uint64_t mib);

// ISOGATE_INTERNAL if the filter's table contradicts itself.
Result<std::shared_ptr<const EnclosureProfile>> make_profile(const Config& config);

}  // namespace isogate::ns
