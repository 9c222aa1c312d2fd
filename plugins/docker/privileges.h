// What this backend keeps of root, and why.
#pragma once

#include "runner/kept_capabilities.h"

namespace isogate::docker {

inline constexpr Kept kKept[] = {
    {0, "CHOWN", "give a new workspace to its sandbox's uid"},
    {1, "DAC_OVERRIDE", "purge what a tenant closed to everybody else, read a runner with mode 0111"},
    {3, "FOWNER", "purge from directories with the sticky bit"},
    {6, "SETGID", "make workspaces with the sandbox's gid"},
    {7, "SETUID", "make workspaces with the sandbox's uid"},
};

}  // namespace isogate::docker
