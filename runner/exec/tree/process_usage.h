// What one process uses, from /proc. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace isogate {

struct ProcessUsage {
  bool stopped = false;
  uint64_t start_ticks = 0;       // since boot: together with the pid it identifies a process
  uint64_t tasks = 0;             // threads
  uint64_t cpu_ticks = 0;         // user and system, of all its threads, also ended ones
  uint64_t waited_cpu_ticks = 0;  // of its children that it has waited for
  uint64_t resident_pages = 0;
};

// Of /proc/PID/stat; nullopt: not laid out like that. Pure.
std::optional<ProcessUsage> parse_process_stat(std::string_view text);

// Bytes that cannot be dropped, those that several processes have divided among them: anonymous and shared
// memory, swapped out or not, of /proc/PID/smaps_rollup. Files are not counted. nullopt: it has none of
// these values. Pure.
std::optional<uint64_t> parse_own_memory(std::string_view rollup);

// nullopt: it has ended.
std::optional<ProcessUsage> process_usage(pid_t pid);

// As parse_own_memory(); nullopt: it cannot be read (an ended process, one that hides its memory).
std::optional<uint64_t> own_memory(pid_t pid);

}  // namespace isogate
