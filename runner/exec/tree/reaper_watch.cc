// Raw code: see raw_syscall.h.
#include "runner/exec/tree/reaper_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <poll.h>

#include <cerrno>
#include <cstdint>

#include "runner/exec/raw_syscall.h"
#include "runner/exec/spawn/spawn.h"

namespace isogate {
namespace {

constexpr uint64_t kPause = 5'000'000;  // no event reports that a group can be removed
constexpr uint64_t kPatience = 10'000'000'000;

struct Start {
  const WatchPlan* plan;
  void* stack;
  size_t stack_size;
  long pid;
};

bool kept(const WatchPlan& plan, int fd) {
  if (fd == plan.host_pidfd) return true;
  for (int i = 0; i < plan.count; ++i) {
    const WatchedBase& base = plan.bases[i];
    if (fd == base.parent_fd || fd == base.dir_fd || fd == base.kill_fd) return true;
  }
  return false;
}

int highest(const WatchPlan& plan) {
  int fd = plan.host_pidfd;
  for (int i = 0; i < plan.count; ++i) {
    const WatchedBase& base = plan.bases[i];
    const int others[3] = {base.parent_fd, base.dir_fd, base.kill_fd};
    for (const int other : others) fd = other > fd ? other : fd;
  }
  return fd;
}

void close_others(const WatchPlan& plan) {
  const int last = highest(plan);
  raw::call(SYS_close_range, static_cast<unsigned>(last + 1), ~0u, 0);
  for (int fd = 0; fd < last; ++fd) {
    if (!kept(plan, fd)) raw::call(SYS_close, fd);
  }
}

// Unmaps every writable mapping except the one that contains `inside`.
void drop_memory(const void* inside) {
  const long maps = raw::call(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
  if (maps < 0) return;
  const uint64_t keep = reinterpret_cast<uint64_t>(inside);
  char text[1024];
  uint64_t bounds[2] = {0, 0};  // start-end perms …
  int field = 0, column = 0;
  bool writable = false;
  for (;;) {
    const long size = raw::call(SYS_read, maps, text, sizeof text);
    if (size <= 0) break;
    for (long i = 0; i < size; ++i) {
      const char c = text[i];
      if (c == '\n') {
        if (writable && (keep < bounds[0] || keep >= bounds[1])) {
          raw::call(SYS_munmap, bounds[0], bounds[1] - bounds[0]);
        }
        bounds[0] = bounds[1] = 0;
        field = column = 0;
        writable = false;
      } else if (c == '-' && field == 0) {
        field = 1;
      } else if (c == ' ') {
        ++field;
        column = 0;
      } else if (field < 2) {
        bounds[field] = bounds[field] * 16 + static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
      } else if (field == 2 && column++ == 1) {
        writable = c == 'w';
      }
    }
  }
  raw::call(SYS_close, maps);
}

constexpr int kLevels = 2;  // groups of sandboxes, and of runs in them

void remove_children(int directory, int levels) {
  alignas(8) char buffer[2048];
  raw::call(SYS_lseek, directory, 0, 0);
  for (;;) {
    const long size = raw::call(SYS_getdents64, directory, buffer, sizeof buffer);
    if (size <= 0) return;
    for (long at = 0; at < size;) {  // d_ino 8, d_off 8, d_reclen 2, d_type 1, d_name
      const char* const entry = buffer + at;
      if (entry[18] == DT_DIR && entry[19] != '.') {
        const long below =
            levels > 1 ? raw::call(SYS_openat, directory, entry + 19, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                       : -1;
        if (below >= 0) {
          remove_children(static_cast<int>(below), levels - 1);
          raw::call(SYS_close, below);
        }
        raw::call(SYS_unlinkat, directory, entry + 19, AT_REMOVEDIR);
      }
      at += *reinterpret_cast<const uint16_t*>(entry + 16);
    }
  }
}

// False: something is still in it.
bool remove_base(const WatchedBase& base) {
  if (base.kill_fd >= 0) raw::call(SYS_write, base.kill_fd, "1", 1);
  remove_children(base.dir_fd, kLevels);
  const long result = raw::call(SYS_unlinkat, base.parent_fd, base.name, AT_REMOVEDIR);
  return result == 0 || result == -ENOENT;
}

void wait_for_death(const WatchPlan& plan) {
  pollfd host = {plan.host_pidfd, POLLIN, 0};
  while (raw::call(SYS_ppoll, &host, 1, 0, 0, 8) < 0) {
  }
}

// What is gone is left alone: a host of another pid namespace that has the same pid may make it again.
void clean_up(const WatchPlan& plan) {
  const uint64_t until = raw::now_ns() + kPatience;
  bool gone[WatchPlan::kMaxBases] = {};
  for (bool done = false; !done && raw::now_ns() < until;) {
    done = true;
    for (int i = 0; i < plan.count; ++i) {
      gone[i] = gone[i] || remove_base(plan.bases[i]);
      done = done && gone[i];
    }
    const raw::Time pause = raw::time_of(kPause);
    if (!done) raw::call(SYS_nanosleep, &pause, 0);
  }
}

[[noreturn]] void watcher_main(void* argument) {
  const WatchPlan& shared = *static_cast<Start*>(argument)->plan;
  alignas(WatchPlan) char copy[sizeof(WatchPlan)];  // on the stack, which stays mapped
  for (size_t i = 0; i < sizeof copy; ++i) copy[i] = reinterpret_cast<const char*>(&shared)[i];
  const WatchPlan& plan = *reinterpret_cast<const WatchPlan*>(copy);
  raw::call(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
  raw::call(SYS_prctl, PR_SET_NAME, "isogate-watch", 0, 0, 0);
  raw::call(SYS_setsid);
  raw::call(SYS_chdir, "/");
  close_others(plan);
  drop_memory(&plan);
  wait_for_death(plan);
  clean_up(plan);
  for (;;) raw::call(SYS_exit_group, 0);
}

// An intermediate process: a child that shares memory has no rseq area registered, and so its own forked
// child has none. The kernel would fault on one in memory that is unmapped.
[[noreturn]] void starter_main(void* argument) {
  Start& start = *static_cast<Start*>(argument);
  CloneRequest request = {};
  request.flags = CLONE_PARENT;
  request.stack = start.stack;
  request.stack_size = start.stack_size;
  request.entry = watcher_main;
  request.argument = argument;
  start.pid = raw_clone(request);
  for (;;) raw::call(SYS_exit_group, 0);
}

}  // namespace

long raw_start_watcher(const WatchPlan& plan, void* first_stack, void* second_stack, size_t stack_size) {
  Start start = {&plan, second_stack, stack_size, -ECHILD};
  CloneRequest request = {};
  request.flags = CLONE_VM | CLONE_VFORK;
  request.stack = first_stack;
  request.stack_size = stack_size;
  request.entry = starter_main;
  request.argument = &start;
  const long starter = raw_run_child(request);
  return starter < 0 ? starter : start.pid;
}

}  // namespace isogate
