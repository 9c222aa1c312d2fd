// Paths that an unprivileged user may read but programs of a sandbox must not. Policy as data: one row a
// path, with its reason. Paths that only root may read need no mask. A missing path is skipped.
#pragma once

namespace isogate {

struct MaskedPath {
  const char* name;
  const char* reason;
};

// In /proc.
inline constexpr MaskedPath kMaskedInProc[] = {
    {"acpi", "the machine"},
    {"asound", "the machine"},
    {"bus", "the machine's devices"},
    {"cmdline", "how the host's kernel was started, secrets included"},
    {"config.gz", "how the kernel was built"},
    {"diskstats", "when others read and write"},
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
    {"pressure", "what others wait for"},
    {"sched_debug", "processes of others"},
    {"schedstat", "when others run"},
    {"scsi", "the machine"},
    {"softirqs", "as interrupts"},
    {"timer_list", "addresses of the kernel, pids of others"},
    {"timer_stats", "pids of others"},
};

// In /sys, where a sandbox has one.
inline constexpr MaskedPath kMaskedInSys[] = {
    {"devices/virtual/powercap", "what others compute, by its power (GHSA-jq35-85cj-fj4p)"},
    {"devices/virtual/thermal", "the same, by its heat"},
    {"firmware", "the machine"},
};

}  // namespace isogate
