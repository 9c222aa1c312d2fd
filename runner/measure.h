// What a program run with an identity finds about itself: the evidence behind a claim of isolation.
//
// The child goes through raw_spawn's preparation like any program, with a copied address space, and reports
// by a page it shares with this process, not by anything a tenant could have touched.
#pragma once

#include "runner/command.h"
#include "runner/spawn_rescue.h"
#include "runner/spawn_stack.h"

namespace isogate {

struct SelfPortrait {  // the child's findings, unparsed
  uint64_t visible_processes;
  uint32_t status_size;
  char status[4096 - 512];  // /proc/self/status
  char namespaces[7][32];   // "mnt:[4026531841]", in the order of kNamespaces
  uint32_t complete;        // 1: all of it was written
};
inline constexpr const char* kNamespaces[7] = {
    "/proc/self/ns/mnt", "/proc/self/ns/pid",  "/proc/self/ns/net",   "/proc/self/ns/ipc",
    "/proc/self/ns/uts", "/proc/self/ns/user", "/proc/self/ns/cgroup"};

// Raw code; `argument` is a SelfPortrait in shared memory. Does not return.
void raw_take_portrait(void* argument);

// Pure. ISOGATE_INTERNAL where the portrait lacks a line that every kernel writes.
Result<isogate_evidence> evidence_from(const SelfPortrait& portrait);

Result<isogate_evidence> measure_identity(const Identity& identity, const SpawnStack& stack,
                                          SpawnRescuer& rescuer);

}  // namespace isogate
