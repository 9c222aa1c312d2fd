// Users and groups of this host by name. Blocks; one thread at a time, as getpwnam(3).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "lib/error.h"

namespace isogate {

struct UserIds {
  uid_t uid = 0;
  gid_t gid = 0;
};

// nullopt: there is none. An error: that is not known, because the user database cannot be read.
Result<std::optional<UserIds>> look_up_user(const std::string& name);
Result<std::optional<gid_t>> look_up_group(const std::string& name);

}  // namespace isogate
