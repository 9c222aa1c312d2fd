// Who a program runs as.
#pragma once

#include <string>
#include <string_view>

#include "runner/exec/command.h"

namespace isogate {

struct User {
  Identity identity;
  std::string name;  // for USER and LOGNAME
};

// A name or a number of the passwd database, or a number that is not in it (its gid is then the same). Only
// for a gateway that was started by root. ISOGATE_NOT_FOUND for an unknown name. Thread-safe.
Result<User> find_user(std::string_view name_or_number);

// The passwd name of this process's own user; "agent" where it has none.
std::string own_name();

}  // namespace isogate
