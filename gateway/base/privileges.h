// What each process gives up, and proof that it did.
//
// Every function changes the calling process for good and checks the result; after an error the
// process must exit. Call them before any second thread exists. [main]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/error.h"

namespace isogate {

// RLIMIT_NOFILE that the gateway takes for its processes, where it may.
inline constexpr uint64_t kMostFiles = 1 << 20;
// Below it no start: a backend host would not have two sandboxes beside its calls (gateway/host/capacity.h).
inline constexpr uint64_t kLeastFiles = 640;

bool started_by_root();

// uid, gid and groups of `user` (plus the named supplementary groups), no capability in any set, the bounding
// set included, no_new_privs, not dumpable. `user` is not root. Refused without uid 0: then stay_same_user().
Result<void> become_user(const std::string& user, const std::vector<std::string>& groups);

// For a process that was not started by root: keeps its user, otherwise as become_user(). Refused as uid
// 0. A process that is not dumpable owns nothing below /proc/<its pid>: other processes must write there
// (uid_map, …) before, or it writes itself.
Result<void> stay_same_user();

// Stays uid 0 with exactly these bits of capabilities(7) (those of them it has), effective and permitted;
// everything else leaves the bounding set; no_new_privs, not dumpable.
Result<void> keep_capabilities(uint64_t linux_capabilities);

// For code that is not trusted yet (isogate plugin describe): the user `nobody` if started by root,
// no capability, no network (a new network namespace where that is permitted), no core, no child
// process, small limits.
Result<void> enter_quarantine();

// How a process reports the call that its filter is about to kill it for: it first sends one datagram,
// `record_of(name)`, to `socket`. The records are made beforehand; the signal handler only sends.
struct ViolationReport {
  int socket = -1;  // -1: nobody
  std::string (*record_of)(const char* system_call) = nullptr;
};

// The front's system call filter: no exec, no new process, no ptrace, no mount, … One table with a reason
// per line, front_filter.h. Applies to all threads; new threads stay possible. A call that kills ends the
// process by SIGSYS, reported or not.
Result<void> install_front_filter(const ViolationReport& report = {});

// Refuses a start with LD_* in the environment; the message names the variable.
Result<void> check_loader_environment();

}  // namespace isogate
