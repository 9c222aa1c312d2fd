// What every program of this backend is given and denied besides its namespaces. Policy as data.
#pragma once

#include <memory>

#include "plugins/namespace/config.h"
#include "runner/enclosure/enclosure.h"

namespace isogate::ns {

// ISOGATE_INTERNAL where the filter's table contradicts itself.
Result<std::shared_ptr<const EnclosureProfile>> make_profile(const Config& config);

}  // namespace isogate::ns
