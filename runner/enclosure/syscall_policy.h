// The system calls that a sandboxed program may make. One row a family, with its reason. A call without a
// row is refused with EPERM, a number beyond all rows with ENOSYS, so that a libc newer than this table
// falls back.
#pragma once

#include <cstdint>
#include <span>

namespace isogate {

enum class SyscallVerdict : uint8_t {
  kRefuse,  // EPERM
  kAbsent,  // ENOSYS: libraries then do without
  kAllow,
  kPretend,     // 0, and nothing is done
  kClone,       // no new namespaces
  kSocket,      // Unix; TCP, UDP and ICMP over IPv4 and IPv6. What netlink buffers counts to no memory limit
  kSocketPair,  // Unix
  kSocketOption,  // all but kRefusedSocketOptions; the size of a receive buffer is pretended
  kFcntl,         // all but the size of pipes
  kIoctl,         // all but kRefusedIoctls
  kPersonality,   // only the ordinary one, and asking which
  kSeccomp,       // no listener that decides for others
  kMap,           // no huge pages: they count in no memory limit
  kMemoryFile,    // the same
  kSharedMemory,  // the same
  kMakeNode2,
  kMakeNode3,  // the mode is argument 1 or 2: no devices
  kDebugOnly,  // allowed in profile debug, else refused
  // No program reaches its own reaper. runner/enclosure/syscall_filter.h says which that is; the
  // program inside a container refuses these by a filter of its own, so that an engine's profile may allow
  // them.
  kOnProcess,   // argument 0 is the process
  kScheduler,   // the same, and argument 1 is not SCHED_IDLE, which starves while it is killed
  kPriority,    // argument 0 says what argument 1 is: a process, a group, not all of a user
  kIoPriority,  // the same, counted from 1
  kSignalTo,    // argument 0 is the process; allowed where the kernel itself protects it
  kByPointer,   // ENOSYS: its policy is behind a pointer
};

// By the low 32 bits of argument 1: what types into a terminal or changes its line discipline, what would
// take a file out of the project by which the disk of its sandbox is limited, and what makes subvolumes of
// btrfs: root cannot remove a file from one that is read-only.
inline constexpr uint32_t kRefusedIoctls[] = {
    0x5412,      // TIOCSTI
    0x541C,      // TIOCLINUX
    0x5423,      // TIOCSETD
    0x40086602,  // FS_IOC_SETFLAGS
    0x40046602,  // FS_IOC32_SETFLAGS
    0x401C5820,  // FS_IOC_FSSETXATTR
    0x50009401,  // BTRFS_IOC_SNAP_CREATE
    0x5000940E,  // BTRFS_IOC_SUBVOL_CREATE
    0x50009417,  // BTRFS_IOC_SNAP_CREATE_V2
    0x50009418,  // BTRFS_IOC_SUBVOL_CREATE_V2
    0x4008941A,  // BTRFS_IOC_SUBVOL_SETFLAGS
};

// At level SOL_SOCKET: programs for the kernel. All of a machine together have a limit, beyond which no
// process may install a filter of system calls without a capability.
inline constexpr uint32_t kRefusedSocketOptions[] = {
    26,  // SO_ATTACH_FILTER
    50,  // SO_ATTACH_BPF
    51,  // SO_ATTACH_REUSEPORT_CBPF
    52,  // SO_ATTACH_REUSEPORT_EBPF
};

struct Syscall {
  const char* name;  // the kernel's, without SYS_
  int number;        // on this architecture
};

struct SyscallRow {
  SyscallVerdict verdict;
  const char* reason;
  std::span<const Syscall> calls;
};

std::span<const SyscallRow> syscall_policy();

}  // namespace isogate
