// The default limits of a sandbox: the one source for the backends that limit by their own settings. The
// defaults in their schemas are these; a test compares them. Plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/limits.h"

namespace isogate {

// Settings of these names, of a sandbox or of one container.
struct CommonLimits {
  uint64_t memory_mb = 512;  // RAM and swap together; 0: no limit, likewise below
  double cpus = 1.0;
  uint64_t pids = 256;
};

struct StrictLimits : CommonLimits {
  uint64_t tmp_mb = 64, shm_mb = 64;  // never 0: /tmp and /dev/shm are always bounded
  uint64_t disk_mb = 1024;            // of a workspace
};
inline constexpr StrictLimits kStrictLimits;

// Of a file system in memory, whatever its size.
inline constexpr uint64_t kInodesInMemory = 65536;

Limits limits_from(const CommonLimits& limits);

// Refuses limits in which nothing runs. `whose`: "`docker`", for the message.
void check_limits(const std::string& whose, const CommonLimits& limits);

// "memory_mb, pids": those that are set, while `capabilities` lack them for a sandbox.
std::string limits_missing(const CommonLimits& limits, uint64_t capabilities);

// How these are weaker than the defaults, in words. `who`: "a sandbox"; `which`: " of `db`" makes
// "memory_mb of `db`"; `machine`: "this host".
void add_limits(std::vector<std::string>& found, const std::string& who, const std::string& which,
                const std::string& machine, const CommonLimits& limits);

// The size of /tmp under a memory limit, in which it counts: half of the limit is left for
// programs.
uint64_t tmp_mb_beside(uint64_t tmp_mb, const Limits& limits);

}  // namespace isogate
