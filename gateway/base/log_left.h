#pragma once

#include <string>
#include <vector>

#include "lib/log.h"
#include "lib/text.h"

namespace isogate {

// One line for all that a process of an ending gateway leaves running.
inline void log_left(const std::vector<std::string>& ids, const std::string& reason) {
  log::error("sandboxes_left_open",
             {{"count", ids.size()}, {"sandboxes", join(ids, " ")}, {"reason", reason}});
}

}  // namespace isogate
