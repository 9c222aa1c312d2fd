// The root capabilities that this backend keeps, and why.
#pragma once

#include "runner/exec/kept_capabilities.h"

namespace isogate::ns {

inline constexpr Kept kKept[] = {
    {0, "CHOWN", "give a new workspace to its sandbox's uid"},
    {1, "DAC_OVERRIDE", "purge what a tenant closed to everybody else, limit cgroups"},
    {3, "FOWNER", "purge from directories with the sticky bit"},
    {5, "KILL", "end programs that have another uid"},
    {6, "SETGID", "run programs and reach files with the sandbox's gid and no groups"},
    {7, "SETUID", "run programs and reach files with the sandbox's uid"},
    {8, "SETPCAP", "empty a program's bounding set"},
    {12, "NET_ADMIN", "bring up the loopback of a sandbox's own network"},
    {18, "SYS_CHROOT", "enter a sandbox's mount namespace"},
    {21, "SYS_ADMIN", "make namespaces and mount in them"},
    {27, "MKNOD", "make the six devices of a sandbox"},
};

}  // namespace isogate::ns
