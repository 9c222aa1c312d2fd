// The protocol between the host and the init of an enclosure (enclosure.h), over one stream socket.
//
// The init is pid 1 of a pid namespace. It first reports where it is and its privileges (InitProof), while no
// tenant code runs there. Then it waits for one InitOrder of kind run or measure, executes it in one child,
// and replies with one InitReport. After a run that has left nothing in its namespaces it begins again, with
// its proof; otherwise it exits, and everything in its namespaces ends with it. The end of the socket, when
// the host dies, also ends it. A tenant gains nothing by forging a report: it holds only the tenant's own
// result.
//
// Raw layout, shared by two programs of one build: no versions.
#pragma once

#include <cstdint>

namespace isogate {

constexpr int kInitSocket = 3;     // the descriptor that the init is started with
constexpr int kInitMostJoins = 8;  // cgroup.procs to join before the program is started
constexpr uint32_t kInitMostBytes = 16u << 20;

// A file as statx(2) reports it; all zero: there is none, or statx failed.
struct FileMark {
  uint64_t device, inode;
  bool operator==(const FileMark&) const = default;
};

struct InitProof {
  uint64_t namespaces[7];    // inode numbers, in the order of kNamespaces; 0: unknown
  FileMark root, workspace;  // its / and /workspace
  uint64_t capabilities;     // of all its sets together
  uint32_t uid, gid;         // real, effective and saved; UINT32_MAX where they differ
  uint32_t no_new_privs, seccomp_mode;
};

enum InitOrderKind : uint32_t { kInitRun = 1, kInitMeasure = 2, kInitSignal = 3 };

// `size` bytes follow. Run brings three descriptors, the program's streams, then those of the groups to join;
// measure brings none.
struct InitOrder {
  uint32_t kind;
  uint32_t size;
  uint32_t value;  // signal: its number, to the program's process group
  uint32_t descriptors;
};

// Run: this, then NUL-terminated strings: the working directory, with `searched` the PATH in which to
// find argv[0], argv, envp.
struct InitRun {
  uint32_t terminal;     // the streams are one: make it the controlling terminal
  uint32_t cwd_beneath;  // the working directory may not lead out of the workspace
  uint32_t searched, arguments, variables;
  uint32_t reserved;
};

// Measure: addresses to try, at most kInitMostAddresses.
constexpr uint32_t kInitMostAddresses = 64;
struct InitAddress {
  uint32_t family;  // AF_INET, AF_INET6
  uint32_t port;
  uint8_t bytes[16];
};

struct InitReport {
  int32_t stage;     // SpawnStage; with os_errno: where it failed
  int32_t os_errno;  // 0: the program was started
  int32_t status;    // wait status
  uint32_t alone;    // 1: nothing but the init was left when this was sent
  uint32_t waits;    // 1: nothing at all was left, and it waits for the next order
  uint32_t reserved;
  uint64_t end_ns, cpu_ns, max_rss_kib;
};

}  // namespace isogate
