// What this backend keeps of root, and why. One table: the descriptor and the probe come from it.
#pragma once

#include <cstdint>
#include <string>

namespace isogate::local {

// capabilities(7)
struct Kept {
  unsigned number;
  const char* name;
  const char* reason;
};
inline constexpr Kept kKept[] = {
    {0, "CHOWN", "give a new workspace to its sandbox's uid"},
    {1, "DAC_OVERRIDE", "purge what a tenant closed to everybody else"},
    {3, "FOWNER", "purge from directories with the sticky bit"},
    {5, "KILL", "end programs that have another uid"},
    {6, "SETGID", "run programs and reach files with the sandbox's gid and no groups"},
    {7, "SETUID", "run programs and reach files with the sandbox's uid"},
    {8, "SETPCAP", "empty a program's bounding set"},
};

constexpr uint64_t kept_capabilities() {
  uint64_t bits = 0;
  for (const Kept& kept : kKept) bits |= uint64_t{1} << kept.number;
  return bits;
}

// The names of those that this process, being root, does not have; empty: none.
std::string missing_capabilities();

}  // namespace isogate::local
