// The environment of a program: the caller's variables, and defaults for those that are absent.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/error.h"

namespace isogate {

using Environment = std::vector<std::pair<std::string, std::string>>;

// The PATH of a program whose environment has none.
inline constexpr const char* kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

struct Surroundings {
  std::string workspace;  // absolute; HOME and WORKSPACE
  std::string user;       // USER and LOGNAME
  std::string shell;      // SHELL
  std::string toolchain;  // goes in front of any PATH, the caller's too; may be empty
};

// ISOGATE_INVALID_ARGUMENT for a name that is empty or holds `=`, and for a NUL anywhere.
Result<void> check_environment(const Environment& given);

// Adds the defaults; the same errors.
Result<Environment> complete(Environment given, const Surroundings& around);

}  // namespace isogate
