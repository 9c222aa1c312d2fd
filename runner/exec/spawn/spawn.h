// Starts one program at nearly the cost of posix_spawn, and knows whether it started.
//
// Two halves. PreparedProgram and describe_failure() are ordinary code of the host. SpawnPlan,
// raw_clone() and raw_spawn() are for raw code (raw_syscall.h): the child borrows this address space
// until it has exec'd, so everything it needs is laid out before it exists.
//
// The child shares memory and suspends its parent (CLONE_VM | CLONE_VFORK), unless the plan joins a memory
// cgroup: an out-of-memory kill there takes every process that shares the memory, this one too, so that
// child gets a copied address space. A child that changes its uid also makes the shared address space
// non-dumpable. That is wanted: no user may trace a host that serves several uids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runner/exec/command.h"
#include "runner/exec/spawn/process_limits.h"

namespace isogate {

struct EnclosurePlan;

enum SpawnStage : int32_t {
  kStageBorn,
  kStageGroup,
  kStageNamespaces,
  kStageMounts,
  kStageTerminal,
  kStageStreams,
  kStagePrivileges,
  kStageIdentity,
  kStageParent,
  kStageDirectory,
  kStageFilter,
  kStageInit,
  kStageExec,
};

struct SpawnReport {  // in a page that stays shared whatever the clone
  int32_t stage;
  int32_t os_errno;  // 0: nothing failed
};

constexpr int kMaxJoins = 4;

constexpr int kProgramNice = 5;  // RunnerOptions::nice

struct SpawnPlan {
  const char* const* argv = nullptr;
  const char* const* envp = nullptr;
  const char* search = nullptr;   // a PATH in which to find argv[0]; null: argv[0] is the program's path
  int streams[3] = {-1, -1, -1};  // no -1 any more; with a terminal all are its slave
  bool terminal = false;
  int cwd_fd = -1;
  const ProcessLimit* limits = nullptr;
  int limit_count = 0;
  bool change_identity = false;
  uint32_t uid = 0, gid = 0;
  int nice = kProgramNice;
  int leaf_fd = -1;                            // a cgroup2 directory to be born in
  int join_fds[kMaxJoins] = {-1, -1, -1, -1};  // tasks of v1 groups
  bool copy_memory = false;
  bool child_signal = false;  // SIGCHLD to the parent even before exec
  // What the child must reset, as far as that is known in advance; all by default. Signal n is bit n - 1.
  uint64_t ignored_signals = ~uint64_t{0};
  uint64_t bounding = ~uint64_t{0};  // capabilities that may be in its bounding set
  void* stack = nullptr;
  size_t stack_size = 0;
  SpawnReport* report = nullptr;
  // What runs instead of exec, after the same preparation (measure.h). Does not return.
  void (*instead)(void* argument) = nullptr;
  void* instead_argument = nullptr;
  // An enclosure to make on the way (enclosure_plan.h): its init is executed, and argv, envp and search are
  // ignored.
  const EnclosurePlan* enclosure = nullptr;
  uint64_t namespaces = 0;  // CLONE_NEW* of the clone
  int init_socket = -1;
  void* bridge_stack = nullptr;  // of the same size, for an enclosure with a user namespace
};

// A child that runs entry(argument) on that stack. clone3, or clone where a filter answers ENOSYS and no leaf
// is asked for. The pid, or -errno. With `handlers_cleared` it starts without signal handlers where the
// kernel can (CLONE_CLEAR_SIGHAND, Linux 5.5), and *handlers_cleared is set before it runs; ignored signals
// stay ignored.
struct CloneRequest {
  uint64_t flags;
  int exit_signal;
  int leaf_fd = -1;
  int* pidfd;
  void* stack;
  size_t stack_size;
  void (*entry)(void*);
  void* argument;
  bool* handlers_cleared;
};
long raw_clone(const CloneRequest& request);

// The same with all signals blocked meanwhile. Waits for the child's end.
long raw_run_child(const CloneRequest& request);

// An `instead` that exits with 0.
void raw_succeed(void*);

// Signals are blocked by the caller. 0, or -errno when there is no child at all; a failure of the child is
// in plan.report once this returns, and the caller then waits for the child. *pidfd is set before the
// child runs.
long raw_spawn(const SpawnPlan& plan, int* pidfd, int* pid);

// argv, environment and PATH of one command as the kernel takes them. Borrows the command. The paths to try
// are made by the child, one after the other, on its stack: PATH may have 131,068 elements, and argv[0] be as
// long.
class PreparedProgram {
 public:
  static Result<PreparedProgram> make(const Command& command);
  void fill(SpawnPlan& plan) const;
  // The body of the order to an enclosure's init.
  [[nodiscard]] std::string packed(const Command& command) const;

 private:
  std::vector<std::string> strings_;
  std::vector<const char*> argv_, envp_;
  const char* search_ = nullptr;
};

// The error for a child that failed before exec.
Error describe_failure(const SpawnReport& report, const Identity& identity);

}  // namespace isogate
