// The single steps that privileges.h puts in order. Each returns what the kernel said.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "runner/error.h"

namespace isogate::privileges {

// A credential is per thread: giving one up in one thread leaves it in the others.
Result<void> require_single_thread();

Result<void> reduce_bounding_set(uint64_t keep);
Result<void> clear_ambient_set();
// Sets permitted and effective to `keep`, inheritable to nothing.
Result<void> set_capabilities(uint64_t keep);
// uid 0 means nothing any more, and none of it can be taken back. Left out, with no error, without
// CAP_SETPCAP.
Result<void> lock_securebits();
Result<void> forbid_new_privileges();
Result<void> forbid_dumps();
Result<void> set_ids(uid_t uid, gid_t gid, const std::vector<gid_t>& groups);

// No capability in any of the five sets, no_new_privs, not dumpable, and no way back to uid 0.
Result<void> verify_powerless();

}  // namespace isogate::privileges
