// Raw code: see raw_syscall.h.
#include "runner/exec/tree/reaper.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>

#include "runner/exec/raw_syscall.h"

namespace isogate {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kOomInterval = 25 * kMillisecond;    // cgroup v1 has no event for a kill
constexpr uint64_t kDrainPatience = 50 * kMillisecond;  // for further bytes of the terminal
// What a terminal still gives of a dead tree is less than this, and comes sooner.
constexpr uint64_t kTerminalBytes = 64 * 1024, kTerminalPatience = 1000 * kMillisecond;
constexpr uint64_t kPromptDeath = 75 * kMillisecond, kHurryInterval = 25 * kMillisecond;
constexpr uint64_t kBlindPatience = 100 * kMillisecond;  // then the process that adopts the rest looks for it
constexpr uint64_t kForever = ~uint64_t{0};

enum Slot { kEnd, kCancel, kControl, kHost, kPump, kSlots = kPump + 3 };

void watch(pollfd& slot, int fd) {
  slot.fd = fd;
  slot.events = POLLIN;
  slot.revents = 0;
}

long wait_for(pollfd* slots, int count, uint64_t patience) {
  raw::Time time = raw::time_of(patience);
  raw::Time* const timeout = patience == kForever ? nullptr : &time;
  return raw::call(SYS_ppoll, slots, count, timeout, 0, 8);
}

// Reaps one child without blocking. Its pid, 0 when none has ended, -ECHILD when there is none.
long reap(RunLoop& loop, long which) {
  int status = 0;
  rusage usage;
  const long pid = raw::call(SYS_wait4, which, &status, WNOHANG | __WALL, &usage);
  if (pid <= 0) return pid;
  loop.result.cpu_ns += raw::nanoseconds(usage.ru_utime) + raw::nanoseconds(usage.ru_stime);
  const uint64_t peak = static_cast<uint64_t>(usage.ru_maxrss);
  if (peak > loop.result.max_rss_kib) loop.result.max_rss_kib = peak;
  if (pid == loop.result.pid) {
    loop.result.status = status;
    loop.result.ended = true;
    loop.result.end_ns = raw::now_ns();
  }
  return pid;
}

void receive_init_report(RunLoop& loop) {
  char* const to = reinterpret_cast<char*>(&loop.init_report) + loop.init_received;
  const long size = raw::call(SYS_read, loop.init_socket, to, sizeof(InitReport) - loop.init_received);
  if (size == -EINTR || size == -EAGAIN) return;
  if (size > 0) loop.init_received += static_cast<uint32_t>(size);
  if (size > 0 && loop.init_received < sizeof(InitReport)) return;
  loop.result.ended = true;
  loop.result.init_lost = size <= 0;
  loop.result.status = size <= 0 ? SIGKILL : loop.init_report.status;
  loop.result.end_ns = raw::now_ns();
  if (size <= 0) return;
  if (loop.init_report.end_ns != 0) loop.result.end_ns = loop.init_report.end_ns;
  loop.result.cpu_ns = loop.init_report.cpu_ns;
  loop.result.max_rss_kib = loop.init_report.max_rss_kib;
  loop.result.from_init = true;
}

void look_for_end(RunLoop& loop) {
  if (loop.init_socket >= 0) return receive_init_report(loop);
  if (!loop.in_reaper) {
    if (reap(loop, loop.result.pid) == -ECHILD) loop.result.ended = loop.result.status_lost = true;
    return;
  }
  char signal[128];  // struct signalfd_siginfo
  raw::call(SYS_read, loop.child_signal_fd, signal, sizeof signal);
  while (reap(loop, -1) > 0) {
  }
}

// Until a moment of silence, or until nothing is left (true).
bool reap_the_dying(RunLoop& loop) {
  const uint64_t child_signal = uint64_t{1} << (SIGCHLD - 1);
  const uint64_t until = raw::now_ns() + 50 * kMillisecond;
  for (;;) {
    long pid = 0;
    do {
      pid = reap(loop, -1);
    } while (pid > 0);
    if (pid == -ECHILD) return true;
    const raw::Time silence = raw::time_of(2 * kMillisecond);
    if (raw::call(SYS_rt_sigtimedwait, &child_signal, 0, &silence, 8) < 0) return false;
    if (raw::now_ns() > until) return false;
  }
}

// 0, or -errno.
long set_quota(RunLoop& loop, int group, const char* text) {
  const char* const name = loop.quota.version == 1 ? "cpu.cfs_quota_us" : "cpu.max";
  const long file = group < 0 ? -EBADF : raw::call(SYS_openat, group, name, O_WRONLY | O_CLOEXEC, 0);
  if (file < 0) return file;
  loop.result.quota_raised = true;
  long size = 0;
  while (text[size] != '\0') ++size;
  const long written = raw::call(SYS_write, file, text, size);
  raw::call(SYS_close, file);
  return written < 0 ? written : 0;
}

// A killed process needs processor time to die: the limits on that are raised if that takes longer than it
// should (CpuQuota). The caller of the loop puts them in force again.
void hurry(RunLoop& loop) {
  if (loop.kill_began_ns == 0 || raw::now_ns() < loop.kill_began_ns + kPromptDeath) return;
  const bool v1 = loop.quota.version == 1;
  const char* const all = v1 ? "-1" : "max";
  set_quota(loop, loop.quota.own_fd, all);
  // v1 refuses more than a group above has: then all is less than one processor more.
  const long raised = set_quota(loop, loop.quota.shared_fd, loop.quota.raised);
  if (v1 && raised == -EINVAL) set_quota(loop, loop.quota.shared_fd, all);
}

bool has_quota(const RunLoop& loop) { return loop.quota.own_fd >= 0 || loop.quota.shared_fd >= 0; }

void begin_kill(RunLoop& loop) {
  if (loop.kill_began_ns == 0) loop.kill_began_ns = raw::now_ns();
}

// In a reaper: when this returns, nothing is left except what the kernel itself delays.
void end_tree(RunLoop& loop) {
  begin_kill(loop);
  const uint64_t until = loop.kill_began_ns + kKillPatienceNs;
  const int self = static_cast<int>(raw::call(SYS_getpid));
  long pid = 0;
  do {
    pid = reap(loop, -1);
  } while (pid > 0);
  if (pid == -ECHILD) return;
  do {
    hurry(loop);
    const bool blind = raw_kill_descendants(self, loop.walk) < 0;
    if (reap_the_dying(loop)) return;
    if (blind && raw::now_ns() > loop.kill_began_ns + kBlindPatience) break;
  } while (raw::now_ns() < until);
  loop.result.left_behind = true;
}

void kill_leaf(RunLoop& loop) {
  if (loop.result.leaf_spent) return;
  loop.result.leaf_spent = true;
  begin_kill(loop);
  raw::call(SYS_write, loop.leaf_kill_fd, "1", 1);
}

// With a leaf. Its cgroup.events can be polled, but the kernel sends that event up to 10 ms late.
void empty_leaf(RunLoop& loop) {
  uint64_t pause = kMillisecond / 10;
  while (raw_populated(loop.leaf_events_fd)) {
    kill_leaf(loop);
    if (raw::now_ns() > loop.kill_began_ns + kKillPatienceNs) {
      loop.result.left_behind = true;
      return;
    }
    hurry(loop);
    const raw::Time time = raw::time_of(pause);
    raw::call(SYS_nanosleep, &time, 0);
    if (pause < 5 * kMillisecond) pause *= 2;
  }
}

void kill_init(RunLoop& loop) {
  if (loop.kill_began_ns != 0) return;
  begin_kill(loop);
  raw::call(SYS_pidfd_send_signal, loop.start.pidfd, SIGKILL, 0, 0);
}

// With an init. One that reports to be alone has left nothing to wait for; otherwise the end of the init ends
// everything in its pid namespace.
void end_init(RunLoop& loop) {
  if (!loop.result.init_lost && loop.init_report.alone == 1) return;
  kill_init(loop);
  const uint64_t until = loop.kill_began_ns + kKillPatienceNs;
  pollfd slot;
  watch(slot, loop.start.pidfd);
  for (uint64_t now = raw::now_ns(); now < until; now = raw::now_ns()) {
    if (wait_for(&slot, 1, has_quota(loop) ? kHurryInterval : until - now) > 0) break;
    hurry(loop);
  }
  int status = 0;
  rusage usage;
  const long pid = raw::call(SYS_wait4, loop.result.pid, &status, WNOHANG | __WALL, &usage);
  loop.result.init_reaped = pid != 0;
  loop.result.left_behind = pid == 0;
  if (pid <= 0) return;
  const uint64_t all = raw::nanoseconds(usage.ru_utime) + raw::nanoseconds(usage.ru_stime);
  loop.result.cpu_ns = all > loop.init_cpu_before_ns ? all - loop.init_cpu_before_ns : 0;
}

void kill_everything(RunLoop& loop) {
  if (loop.init_socket >= 0) return kill_init(loop);
  if (loop.in_reaper) {
    end_tree(loop);
  } else {
    kill_leaf(loop);
  }
}

[[noreturn]] void host_died(RunLoop& loop) {
  raw::call(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE);
  end_tree(loop);
  for (;;) raw::call(SYS_exit_group, 0);
}

void apply(const RunLoop& loop, const isogate_control& order) {
  const bool signal = order.type == ISOGATE_CONTROL_SIGNAL && order.a >= 1 && order.a <= 64;
  if (signal && loop.init_socket >= 0) {
    const InitOrder passed_on = {kInitSignal, 0, order.a, 0};
    raw::call(SYS_sendto, loop.init_socket, &passed_on, sizeof passed_on, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
  } else if (signal) {
    raw::call(SYS_kill, -static_cast<long>(loop.result.pid), order.a);
  } else if (order.type == ISOGATE_CONTROL_RESIZE && loop.pump != nullptr) {
    raw_pump_resize(*loop.pump, order.a, order.b);
  }
}

void read_control(RunLoop& loop) {
  size_t room = 0;
  char* const at = raw_control_room(loop.control, room);
  const long size = raw::call(SYS_read, loop.control_fd, at, room);
  if (size == -EINTR || size == -EAGAIN) return;
  if (size <= 0) {
    loop.control_fd = -1;
    return;
  }
  raw_control_read(loop.control, static_cast<size_t>(size),
                   [&loop](const isogate_control& order) { apply(loop, order); });
}

uint64_t patience(RunLoop& loop) {
  if (loop.kill_began_ns != 0) {
    const uint64_t until = loop.kill_began_ns + kKillPatienceNs, now = raw::now_ns();
    if (now >= until) loop.result.left_behind = true;
    hurry(loop);
    return now >= until ? 0 : has_quota(loop) ? kHurryInterval : until - now;
  }
  return loop.oom_fd >= 0 ? kOomInterval : kForever;
}

void handle_events(RunLoop& loop, const pollfd* slots) {
  if (slots[kHost].revents != 0) host_died(loop);
  if (slots[kCancel].revents != 0) {
    loop.cancelled = loop.result.killed = true;
    kill_everything(loop);
  } else if (loop.oom_fd >= 0 && loop.kill_began_ns == 0 && raw_oom_kills(loop.oom_fd) > loop.oom_before) {
    loop.result.out_of_memory = true;
    kill_everything(loop);
  }
  if (slots[kControl].revents != 0) read_control(loop);
  if (loop.pump != nullptr) raw_pump(*loop.pump, slots + kPump);
}

void watch_program(RunLoop& loop) {
  pollfd slots[kSlots];
  while (!loop.result.ended && !loop.result.left_behind) {
    watch(slots[kEnd], loop.init_socket >= 0 ? loop.init_socket
                       : loop.in_reaper      ? loop.child_signal_fd
                                             : loop.start.pidfd);
    watch(slots[kCancel], loop.cancelled ? -1 : loop.start.cancel_fd);
    watch(slots[kControl], loop.control_fd);
    watch(slots[kHost], loop.host_pidfd);
    if (loop.pump != nullptr) raw_pump_wait(*loop.pump, true, slots + kPump);
    if (wait_for(slots, loop.pump != nullptr ? kSlots : kPump, patience(loop)) < 0) continue;
    if (slots[kEnd].revents != 0) look_for_end(loop);
    if (!loop.result.ended) handle_events(loop, slots);
  }
}

// The tree's terminal output is delivered, also to a slow reader, unless cancelled. What somebody else goes
// on writing there is not.
void drain(RunLoop& loop) {
  PtyPump& pump = *loop.pump;
  const uint64_t most = pump.taken + kTerminalBytes;
  uint64_t waited = 0;
  raw::call(SYS_close, pump.slave);
  pump.slave = -1;
  uint64_t until = loop.cancelled ? raw::now_ns() + kDrainPatience : kForever;
  pollfd slots[kSlots];
  while ((pump.master >= 0 && pump.taken < most && waited < kTerminalPatience) || !raw_pump_empty(pump)) {
    const uint64_t now = raw::now_ns();
    if (now >= until) return;
    watch(slots[kEnd], -1);
    watch(slots[kCancel], loop.cancelled ? -1 : loop.start.cancel_fd);
    watch(slots[kControl], -1);
    watch(slots[kHost], loop.host_pidfd);
    raw_pump_wait(pump, false, slots + kPump);
    const bool for_terminal = raw_pump_empty(pump);
    const uint64_t longest = for_terminal ? kDrainPatience : kForever;
    const uint64_t left = until == kForever ? longest : until - now;
    const long ready = wait_for(slots, kSlots, left < longest ? left : longest);
    if (ready == 0) return;
    if (for_terminal) waited += raw::now_ns() - now;
    if (ready < 0) continue;
    if (slots[kHost].revents != 0) host_died(loop);
    if (slots[kCancel].revents != 0) {
      loop.cancelled = true;
      until = now + kDrainPatience;
    }
    raw_pump(pump, slots + kPump);
  }
}

// A program that was killed while its cancellation had fired died of it, whichever came first.
void attribute(RunLoop& loop) {
  if (loop.cancelled || loop.start.cancel_fd < 0 || (loop.result.status & 0x7f) != SIGKILL) return;
  pollfd slot;
  watch(slot, loop.start.cancel_fd);
  if (wait_for(&slot, 1, 0) > 0) loop.cancelled = loop.result.killed = true;
}

void run(RunLoop& loop) {
  watch_program(loop);
  attribute(loop);
  if (loop.init_socket >= 0) {
    end_init(loop);
  } else if (loop.in_reaper) {
    end_tree(loop);
  } else {
    empty_leaf(loop);
  }
  if (loop.pump != nullptr) drain(loop);
  loop.result.finished = true;
}

void spawn(RunLoop& loop) {
  loop.result.start_ns = raw::now_ns();
  loop.result.spawn_error = raw_spawn(loop.plan, &loop.start.pidfd, &loop.result.pid);
  __atomic_store_n(&loop.start.started, 1, __ATOMIC_RELEASE);
}

[[noreturn]] void reaper_main(void* argument) {
  RunLoop& loop = *static_cast<RunLoop*>(argument);
  const uint64_t by_default[4] = {0, 0, 0, 0};
  raw::call(SYS_rt_sigaction, SIGCHLD, by_default, 0, 8);  // its own table: an ignored SIGCHLD would reap
  raw::call(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  __atomic_store_n(&loop.reaper_pid, static_cast<int>(raw::call(SYS_getpid)), __ATOMIC_RELEASE);
  spawn(loop);
  if (loop.result.spawn_error == 0) run(loop);
  loop.result.finished = true;
  for (;;) raw::call(SYS_exit_group, 0);
}

}  // namespace

void raw_run_leaf(RunLoop& loop) {
  uint64_t mask = 0;
  raw::block_signals(&mask);
  spawn(loop);
  raw::restore_signals(&mask);
  if (loop.result.spawn_error == 0) run(loop);
  loop.result.finished = true;
}

void raw_run_init(RunLoop& loop) { run(loop); }

long raw_run_reaper(RunLoop& loop, void* stack, size_t stack_size) {
  CloneRequest request = {};
  request.flags = CLONE_VM | CLONE_VFORK | CLONE_FILES;
  request.stack = stack;
  request.stack_size = stack_size;
  request.entry = reaper_main;
  request.argument = &loop;
  const long reaper = raw_run_child(request);
  return reaper < 0 ? reaper : 0;
}

namespace {

// The number after `name` at the start of a line; -1: no such line, or the file cannot be read.
int64_t counter(int fd, const char* name) {
  char text[1024];
  const long size = raw::call(SYS_pread64, fd, text, sizeof text, 0);
  for (long at = 0; at < size;) {
    long i = 0;
    while (at + i < size && name[i] != '\0' && text[at + i] == name[i]) ++i;
    if (name[i] == '\0' && at + i < size && text[at + i] == ' ') {
      int64_t value = 0;
      for (long digit = at + i + 1; digit < size && text[digit] >= '0' && text[digit] <= '9'; ++digit) {
        value = value * 10 + (text[digit] - '0');
      }
      return value;
    }
    while (at < size && text[at] != '\n') ++at;
    ++at;
  }
  return -1;
}

}  // namespace

uint64_t raw_oom_kills(int fd) {
  const int64_t kills = counter(fd, "oom_kill");
  return kills < 0 ? 0 : static_cast<uint64_t>(kills);
}

bool raw_populated(int events_fd) { return counter(events_fd, "populated") != 0; }

}  // namespace isogate
