// Runs one program on this host to its end, and leaves nothing behind.
//
// A Runner is made once per backend. run() blocks its thread until the program has ended and every
// process it started, however it detached itself, is dead. Any number of threads may call it.
//
// How the tree is killed: by cgroup.kill in its own cgroup2 leaf where one can be created (the leaf is
// reused, and replaced after each kill); otherwise by a reaper, a child that shares this address
// space, is the subreaper of the tree and stops it before killing it. Either way the tree also dies
// within 250 ms of this process, if that is killed with SIGKILL.
//
// Rules for the calling process. SIGCHLD stays at its default, and the process waits for no child that it
// did not start: run() is ISOGATE_LOST when other code took an exit status. Once a Runner is made, the
// process ignores no further signal except SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2 and those of terminals. No
// thread has a capability in its bounding set that the first one does not have. run() may suspend its thread
// with all signals blocked: another thread must take them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isogate/backend.h"
#include "lib/fd.h"
#include "lib/limits.h"

namespace isogate {

struct Identity {
  bool change = false;        // false: as this process (then uid and gid are not read)
  uint32_t uid = 0, gid = 0;  // groups are emptied, every capability dropped, the bounding set too
};

class Enclosure;  // enclosure.h
struct EnclosureOptions;

// Where a program runs. It has no default and no empty value: absence never means this host. Copies and
// moved-from objects stay valid.
class Site {
 public:
  // This process's own surroundings, without isolation. Only the callers listed in
  // tests/runner/site_test.cc may use it.
  static Site host() { return Site(nullptr); }

  // Null: this host.
  [[nodiscard]] Enclosure* enclosure() const { return enclosure_.get(); }

  Site(const Site&) = default;
  Site& operator=(const Site&) = default;

 private:
  friend class CommandRunner;  // enclose() makes one, of an enclosure that is there
  explicit Site(std::shared_ptr<Enclosure> enclosure) : enclosure_(std::move(enclosure)) {}
  std::shared_ptr<Enclosure> enclosure_;
};

struct Command {
  explicit Command(Site where) : site(std::move(where)) {}

  Site site;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;  // exact
  int cwd_fd = -1;                                       // on this host: fchdir before exec; -1: stay
  Identity identity;
  int stdin_fd = -1, stdout_fd = -1, stderr_fd = -1;  // -1: /dev/null
  bool pty = false;                                   // stdin_fd and stdout_fd are the terminal's bytes
  uint16_t rows = 0, cols = 0;
  int control_fd = -1;          // isogate_control records
  int cancel_fd = -1;           // readable: kill the tree
  std::string cwd;              // in an enclosure; relative: beneath the workspace, whatever links there are
  Limits limits;                // a group of its own; what cannot be enforced is ISOGATE_UNSUPPORTED
  bool limits_sampled = false;  // limits without a group may be sampled; not in an enclosure
};

struct Ending {
  bool started = true;                // false: exec failed with os_errno, exit_code is 126 or 127
  bool killed = false;                // cancel_fd fired
  bool oom_killed = false;            // from the kernel's counters, or its memory was sampled
  bool pids_exceeded = false;         // killed: more processes were sampled than it may have
  std::optional<uint32_t> isolation;  // ISOGATE_ISOLATION_*, as this run itself has proven it
  bool left_behind = false;  // SIGKILL was sent, but the kernel kept a process for 10 s (a stuck disk)
  int os_errno = 0;
  int exit_code = 0, term_signal = 0;
  uint64_t wall_ns = 0, cpu_ns = 0;
  uint64_t max_rss_bytes = 0;  // 0: not known. The kernel counts this process's own peak in, so that only a
                               // program that grew larger than this process can be told.
};

struct RunnerOptions {
  bool use_cgroups = true;  // false: always the reaper, and no limits
  bool use_leaf = true;     // false: always the reaper, except for limits that need a cgroup2 leaf
  // Of programs, so that they yield to their reaper and to this process: among 400 that spin, a thread of the
  // same niceness runs three quarters of a second late (Linux 6.18), and takes 3 s for 8 ms of work. Best
  // effort: a process with a lower priority keeps it. 19 where programs share a processor limit with this
  // process only, as in a container.
  int nice = 5;
  std::string group = "isogate";  // <group>.<pid>.<n> is made below this process's own cgroup
  // One line when a run had no leaf, or its cleanup failed. Any thread.
  std::function<void(const std::string&)> notice;
};

class Runner {
 public:
  // Never fails: abilities() reports what is missing here.
  static std::unique_ptr<Runner> make(RunnerOptions options);
  virtual ~Runner() = default;

  // Errors: ISOGATE_CANCELLED when cancel_fd fired before the start, ISOGATE_UNSUPPORTED for a limit
  // that cannot be enforced here, ISOGATE_INVALID_ARGUMENT for arguments the kernel cannot take, what
  // kept the program from being prepared (identity, cwd_fd, …), ISOGATE_LOST when the reaper was killed
  // or its limits could not be sampled any more.
  virtual Result<Ending> run(const Command& command) = 0;

  // What a program there with this identity finds about itself, measured in a child after the same
  // preparation as run()'s. In an enclosure only before its first run(), and only there `request` is used.
  virtual Result<isogate_evidence> measure(const Site& site, const Identity& identity,
                                           const isogate_evidence_request& request) = 0;

  // See enclosure.h.
  virtual Result<Site> enclose(EnclosureOptions options) = 0;
  // Ends an enclosure: from now on no program starts in it (ISOGATE_NO_SANDBOX), and when this returns OK
  // nothing runs in it. ISOGATE_UNAVAILABLE while the kernel delays the end of a process; may be repeated.
  virtual Result<void> release(const Site& site) = 0;

  struct Abilities {
    uint64_t capabilities = 0;  // ISOGATE_CAP_LIMIT_*, also _SAMPLED, ISOGATE_CAP_PTY
    std::string tree_kill;      // "cgroup2 leaf" or "reaper"
    std::string missing;        // one line: which controllers are absent and why; empty: none
    std::string broken;         // why nothing can be run here; empty: it can
  };
  [[nodiscard]] virtual const Abilities& abilities() const = 0;
};

}  // namespace isogate
