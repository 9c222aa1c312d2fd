// Ids of sandboxes that are created in advance.
#pragma once

#include <string>

#include "lib/hash.h"

namespace isogate {

// An unused sandbox id: "isg-" and 130 random bits in base32.
inline std::string random_sandbox_id() { return "isg-" + base32_lower(random_bytes(17)).substr(0, 26); }

}  // namespace isogate
