// How much a backend host accepts at a time. Pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gateway/config/config.h"

namespace isogate {

// A watch keeps an inotify instance, of which the kernel gives one user 128 (fs.inotify.max_user_instances).
// The reserve is for probes and closes.
inline constexpr size_t kFileCalls = 512, kWatches = 64, kConnections = 512, kReserve = 16;

struct Capacity {
  size_t calls = 0, sandboxes = 0;
};

Capacity wanted_capacity(const LimitsConfig& limits);
// Of that, what this many open files suffice for; `isolation` is the plugin's. At least 2 * kReserve calls
// and one sandbox; from kLeastFiles on two sandboxes, one of each of two tenants.
Capacity capacity_of(const LimitsConfig& limits, uint32_t isolation, uint64_t open_files);

}  // namespace isogate
