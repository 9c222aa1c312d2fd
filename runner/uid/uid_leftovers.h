// What outlives the processes of a uid although no directory of its sandbox holds it: System V shared memory,
// message queues and semaphores (sysvipc(7)), POSIX message queues (mq_overview(7)), what it has in /dev/shm,
// and the keys in its user, user-session and persistent keyrings (keyrings(7)). Whoever has the uid next
// would own them.
//
// Those of this process's namespaces; others end with their processes. For root, and for uids of the registry
// (uid_registry.h) that have no process any more: nothing could stop or trace the child that removes
// what only the uid itself may.
#pragma once

#include <cstdint>
#include <string>

#include "lib/error.h"

namespace isogate {

// Removes them. An error, ISOGATE_CANCELLED among them: some are perhaps left, do not release the uid; it can
// be called again. Shared memory to which programs of other uids are attached ends with the last of these.
// Waits up to five seconds until the kernel has freed the keys. ISOGATE_UNAVAILABLE if it has not: another
// uid's keyring has them too, or the uid revoked its keyring or let it expire (the kernel then takes
// kernel.keys.gc_delay seconds), or closed it to everybody (until the machine restarts). Any thread.
Result<void> remove_leftovers_of(uint32_t uid, int cancel_fd);

// Whether the kernel still has keys of it: do not assign it. ISOGATE_UNAVAILABLE where that is hidden.
Result<bool> has_keys(uint32_t uid);

// Why they could not all be found here, with what to do; empty: they can.
std::string why_leftovers_are_hidden();

}  // namespace isogate
