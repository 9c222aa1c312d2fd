// What a configuration names, looked at as a start would: files, users, and each backend by starting its host
// for a moment. Nobody is served.
#pragma once

#include <string>
#include <vector>

#include "gateway/config/load.h"

namespace isogate::cli {

struct TrialReport {
  std::vector<std::string> mistakes;  // one line each: place, setting, what is wrong
  std::vector<std::string> notes;     // what does not keep a gateway from starting, or could not be looked at
};

TrialReport try_config(const Loaded& loaded);

}  // namespace isogate::cli
