// What a process finds about itself, as raw code takes it (measure.h says what for).
#pragma once

#include <cstdint>

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

}  // namespace isogate
