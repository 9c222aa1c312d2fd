// The system users that a gateway started by root needs.
#pragma once

#include <sys/types.h>

#include "gateway/config/config.h"
#include "lib/error.h"

namespace isogate::supervisor {

struct Accounts {
  bool root = false;    // false: everything runs as this process's own user
  uid_t front_uid = 0;  // who the front becomes
  gid_t front_gid = 0;
};

// As root: `isogate`, `isogate-host` and each backend's run_as must exist; the message names the
// command that creates the missing one. Otherwise this process's own ids.
Result<Accounts> find_accounts(const Config& config);

}  // namespace isogate::supervisor
