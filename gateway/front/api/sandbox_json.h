// A sandbox as calls report it. The front's one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gateway/front/sandboxes/sandbox.h"

namespace isogate::front {

nlohmann::ordered_json sandbox_json(const Sandbox& sandbox);

}  // namespace isogate::front
