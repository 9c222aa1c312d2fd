#pragma once

#include <string>
#include <vector>

#include "lib/log.h"

namespace isogate {

// One line for all that a process of an ending gateway leaves running.
inline void log_left(const std::vector<std::string>& ids, const std::string& reason) {
  std::string names;
  for (const std::string& id : ids) names += (names.empty() ? "" : " ") + id;
  log::error("sandboxes_left_open", {{"count", ids.size()}, {"sandboxes", names}, {"reason", reason}});
}

}  // namespace isogate
