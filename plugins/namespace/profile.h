// What every program of this backend is given and denied besides its namespaces. Policy as data.
#pragma once

#include <memory>

#include "plugins/namespace/config.h"
#include "runner/enclosure.h"

namespace isogate::ns {

// Files of /proc that an unprivileged user may read and a tenant has no business with. What only root may
// read needs no mask: no program of this backend is root, and all of /proc is read-only.
struct Masked {
  const char* name;
  const char* reason;
};
inline constexpr Masked kMasked[] = {
    {"acpi", "the machine"},
    {"asound", "the machine"},
    {"bus", "the machine's devices"},
    {"config.gz", "how the kernel was built"},
    {"fs", "the host's mounted file systems, by device"},
    {"interrupts", "when others press keys and send packets (GHSA-6fw5-f8r9-fgfm)"},
    {"iomem", "physical memory"},
    {"ioports", "the machine"},
    {"irq", "the machine"},
    {"kallsyms", "addresses of the kernel"},
    {"key-users", "who has keys"},
    {"keys", "keys of the host's users"},
    {"latency_stats", "what others wait for"},
    {"locks", "inodes and pids of others"},
    {"sched_debug", "processes of others"},
    {"schedstat", "when others run"},
    {"scsi", "the machine"},
    {"softirqs", "as interrupts"},
    {"timer_list", "addresses of the kernel, pids of others"},
    {"timer_stats", "pids of others"},
};

// ISOGATE_INTERNAL where the filter's table contradicts itself.
Result<std::shared_ptr<const EnclosureProfile>> make_profile(const Config& config);

}  // namespace isogate::ns
