// Paths that an unprivileged user may read but programs of a sandbox must not. Policy as data: one row a
// path, with its reason. Paths that only root may read need no mask. A missing path is skipped.
#pragma once

namespace isogate {

struct MaskedPath {
  const char* path;
  const char* reason;
};

inline constexpr MaskedPath kMaskedInProc[] = {
    {"/proc/acpi", "the machine"},
    {"/proc/asound", "the machine"},
    {"/proc/bus", "the machine's devices"},
    {"/proc/cmdline", "how the host's kernel was started, secrets included"},
    {"/proc/config.gz", "how the kernel was built"},
    {"/proc/diskstats", "when others read and write"},
    {"/proc/fs", "the host's mounted file systems, by device"},
    {"/proc/interrupts", "when others press keys and send packets (GHSA-6fw5-f8r9-fgfm)"},
    {"/proc/iomem", "physical memory"},
    {"/proc/ioports", "the machine"},
    {"/proc/irq", "the machine"},
    {"/proc/kallsyms", "addresses of the kernel"},
    {"/proc/key-users", "who has keys"},
    {"/proc/keys", "keys of the host's users"},
    {"/proc/latency_stats", "what others wait for"},
    {"/proc/locks", "inodes and pids of others"},
    {"/proc/pressure", "what others wait for"},
    {"/proc/sched_debug", "processes of others"},
    {"/proc/schedstat", "when others run"},
    {"/proc/scsi", "the machine"},
    {"/proc/softirqs", "as interrupts"},
    {"/proc/timer_list", "addresses of the kernel, pids of others"},
    {"/proc/timer_stats", "pids of others"},
};

// In /sys, where a sandbox has one.
inline constexpr MaskedPath kMaskedInSys[] = {
    {"/sys/devices/virtual/powercap", "what others compute, by its power (GHSA-jq35-85cj-fj4p)"},
    {"/sys/devices/virtual/thermal", "the same, by its heat"},
    {"/sys/firmware", "the machine"},
};

}  // namespace isogate
