// Raw code: see raw_syscall.h.
#include "runner/supervise.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>

#include "runner/raw_syscall.h"

namespace isogate {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kOomInterval = 25 * kMillisecond;
constexpr uint64_t kDrainPatience = 50 * kMillisecond;  // for further bytes of the terminal
constexpr uint64_t kPromptDeath = 75 * kMillisecond, kHurryInterval = 25 * kMillisecond;
constexpr uint64_t kBlindPatience = 100 * kMillisecond;  // whoever adopts what is left then looks for it
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

uint64_t nanoseconds(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_usec) * 1000u;
}

// Reaps one child without blocking. Its pid, 0 when none has ended, -ECHILD when there is none.
long reap(Supervision& s, long which) {
  int status = 0;
  rusage usage;
  const long pid = raw::call(SYS_wait4, which, &status, WNOHANG | __WALL, &usage);
  if (pid <= 0) return pid;
  s.result.cpu_ns += nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
  const uint64_t peak = static_cast<uint64_t>(usage.ru_maxrss);
  if (peak > s.result.max_rss_kib) s.result.max_rss_kib = peak;
  if (pid == s.result.pid) {
    s.result.status = status;
    s.result.ended = true;
    s.result.end_ns = raw::now_ns();
  }
  return pid;
}

void hear_init(Supervision& s) {
  char* const to = reinterpret_cast<char*>(&s.init_report) + s.init_heard;
  const long size = raw::call(SYS_read, s.init_socket, to, sizeof(InitReport) - s.init_heard);
  if (size == -EINTR || size == -EAGAIN) return;
  if (size > 0) s.init_heard += static_cast<uint32_t>(size);
  if (size > 0 && s.init_heard < sizeof(InitReport)) return;
  s.result.ended = true;
  s.result.init_lost = size <= 0;
  s.result.status = size <= 0 ? SIGKILL : s.init_report.status;
  s.result.end_ns = raw::now_ns();
  if (size <= 0) return;
  if (s.init_report.end_ns != 0) s.result.end_ns = s.init_report.end_ns;
  s.result.cpu_ns = s.init_report.cpu_ns;
  s.result.max_rss_kib = s.init_report.max_rss_kib;
  s.result.from_init = true;
}

void look_for_end(Supervision& s) {
  if (s.init_socket >= 0) return hear_init(s);
  if (!s.supervisor) {
    if (reap(s, s.result.pid) == -ECHILD) s.result.ended = s.result.status_lost = true;
    return;
  }
  char signal[128];  // struct signalfd_siginfo
  raw::call(SYS_read, s.child_signal_fd, signal, sizeof signal);
  while (reap(s, -1) > 0) {
  }
}

// Until a moment of silence, or until nothing is left (true).
bool reap_the_dying(Supervision& s) {
  const uint64_t child_signal = uint64_t{1} << (SIGCHLD - 1);
  const uint64_t until = raw::now_ns() + 50 * kMillisecond;
  for (;;) {
    long pid = 0;
    do {
      pid = reap(s, -1);
    } while (pid > 0);
    if (pid == -ECHILD) return true;
    const raw::Time silence = raw::time_of(2 * kMillisecond);
    if (raw::call(SYS_rt_sigtimedwait, &child_signal, 0, &silence, 8) < 0) return false;
    if (raw::now_ns() > until) return false;
  }
}

// What is killed needs processor time to die: a limit on that, of the run or of its sandbox, is lifted once
// it takes longer than it should. The caller of the loop puts it in force again.
void hurry(Supervision& s) {
  if (s.kill_began_ns == 0 || raw::now_ns() < s.kill_began_ns + kPromptDeath) return;
  const bool v1 = s.quota.version == 1;
  for (const int group : {s.quota.own_fd, s.quota.shared_fd}) {
    if (group < 0) continue;
    const char* const name = v1 ? "cpu.cfs_quota_us" : "cpu.max";
    const long file = raw::call(SYS_openat, group, name, O_WRONLY | O_CLOEXEC, 0);
    if (file < 0) continue;
    s.result.quota_lifted = true;
    raw::call(SYS_write, file, v1 ? "-1" : "max", v1 ? 2 : 3);
    raw::call(SYS_close, file);
  }
}

bool has_quota(const Supervision& s) { return s.quota.own_fd >= 0 || s.quota.shared_fd >= 0; }

void begin_kill(Supervision& s) {
  if (s.kill_began_ns == 0) s.kill_began_ns = raw::now_ns();
}

// The supervisor's way: nothing but what the kernel itself holds back is left when this returns.
void end_tree(Supervision& s) {
  begin_kill(s);
  const uint64_t until = s.kill_began_ns + kKillPatienceNs;
  const int self = static_cast<int>(raw::call(SYS_getpid));
  long pid = 0;
  do {
    pid = reap(s, -1);
  } while (pid > 0);
  if (pid == -ECHILD) return;
  do {
    hurry(s);
    const bool blind = raw_kill_descendants(self, s.walk) < 0;
    if (reap_the_dying(s)) return;
    if (blind && raw::now_ns() > s.kill_began_ns + kBlindPatience) break;
  } while (raw::now_ns() < until);
  s.result.left_behind = true;
}

void kill_leaf(Supervision& s) {
  if (s.result.leaf_spent) return;
  s.result.leaf_spent = true;
  begin_kill(s);
  raw::call(SYS_write, s.leaf_kill_fd, "1", 1);
}

// The leaf's way.
void empty_leaf(Supervision& s) {
  uint64_t pause = kMillisecond / 10;
  while (raw_populated(s.leaf_events_fd)) {
    kill_leaf(s);
    if (raw::now_ns() > s.kill_began_ns + kKillPatienceNs) {
      s.result.left_behind = true;
      return;
    }
    hurry(s);
    const raw::Time time = raw::time_of(pause);
    raw::call(SYS_nanosleep, &time, 0);
    if (pause < 5 * kMillisecond) pause *= 2;
  }
}

void kill_init(Supervision& s) {
  if (s.kill_began_ns != 0) return;
  begin_kill(s);
  raw::call(SYS_pidfd_send_signal, s.start.pidfd, SIGKILL, 0, 0);
}

// The init's way. What reports to be alone has nothing left to be waited for; else the end of the init is the
// end of all that its pid namespace held.
void end_init(Supervision& s) {
  if (!s.result.init_lost && s.init_report.alone == 1) return;
  kill_init(s);
  const uint64_t until = s.kill_began_ns + kKillPatienceNs;
  pollfd slot;
  watch(slot, s.start.pidfd);
  for (uint64_t now = raw::now_ns(); now < until; now = raw::now_ns()) {
    if (wait_for(&slot, 1, has_quota(s) ? kHurryInterval : until - now) > 0) break;
    hurry(s);
  }
  int status = 0;
  rusage usage;
  const long pid = raw::call(SYS_wait4, s.result.pid, &status, WNOHANG | __WALL, &usage);
  s.result.init_reaped = pid != 0;
  s.result.left_behind = pid == 0;
  if (pid <= 0) return;
  s.result.cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
}

void kill_everything(Supervision& s) {
  if (s.init_socket >= 0) return kill_init(s);
  if (s.supervisor) {
    end_tree(s);
  } else {
    kill_leaf(s);
  }
}

[[noreturn]] void host_died(Supervision& s) {
  raw::call(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE);
  end_tree(s);
  for (;;) raw::call(SYS_exit_group, 0);
}

void obey(const Supervision& s, const isogate_control& order) {
  const bool signal = order.type == ISOGATE_CONTROL_SIGNAL && order.a >= 1 && order.a <= 64;
  if (signal && s.init_socket >= 0) {
    const InitOrder passed_on = {kInitSignal, 0, order.a, 0};
    raw::call(SYS_sendto, s.init_socket, &passed_on, sizeof passed_on, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
  } else if (signal) {
    raw::call(SYS_kill, -static_cast<long>(s.result.pid), order.a);
  } else if (order.type == ISOGATE_CONTROL_RESIZE && s.pump != nullptr) {
    raw_pump_resize(*s.pump, order.a, order.b);
  }
}

void read_control(Supervision& s) {
  const long size =
      raw::call(SYS_read, s.control_fd, s.control + s.control_length, sizeof s.control - s.control_length);
  if (size == -EINTR || size == -EAGAIN) return;
  if (size <= 0) {
    s.control_fd = -1;
    return;
  }
  s.control_length += static_cast<uint32_t>(size);
  uint32_t at = 0;
  for (; s.control_length - at >= sizeof(isogate_control); at += sizeof(isogate_control)) {
    obey(s, *reinterpret_cast<const isogate_control*>(s.control + at));
  }
  for (uint32_t i = at; i < s.control_length; ++i) s.control[i - at] = s.control[i];
  s.control_length -= at;
}

uint64_t patience(Supervision& s) {
  if (s.kill_began_ns != 0) {
    const uint64_t until = s.kill_began_ns + kKillPatienceNs, now = raw::now_ns();
    if (now >= until) s.result.left_behind = true;
    hurry(s);
    return now >= until ? 0 : has_quota(s) ? kHurryInterval : until - now;
  }
  return s.oom_fd >= 0 ? kOomInterval : kForever;
}

void take_notice(Supervision& s, const pollfd* slots) {
  if (slots[kHost].revents != 0) host_died(s);
  if (slots[kCancel].revents != 0) {
    s.cancelled = s.result.killed = true;
    kill_everything(s);
  } else if (s.oom_fd >= 0 && s.kill_began_ns == 0 && raw_oom_kills(s.oom_fd) > s.oom_before) {
    s.result.out_of_memory = true;
    kill_everything(s);
  }
  if (slots[kControl].revents != 0) read_control(s);
  if (s.pump != nullptr) raw_pump(*s.pump, slots + kPump);
}

void watch_program(Supervision& s) {
  pollfd slots[kSlots];
  while (!s.result.ended && !s.result.left_behind) {
    watch(slots[kEnd], s.init_socket >= 0 ? s.init_socket : s.supervisor ? s.child_signal_fd : s.start.pidfd);
    watch(slots[kCancel], s.cancelled ? -1 : s.start.cancel_fd);
    watch(slots[kControl], s.control_fd);
    watch(slots[kHost], s.host_pidfd);
    if (s.pump != nullptr) raw_pump_wait(*s.pump, true, slots + kPump);
    if (wait_for(slots, s.pump != nullptr ? kSlots : kPump, patience(s)) < 0) continue;
    if (slots[kEnd].revents != 0) look_for_end(s);
    if (!s.result.ended) take_notice(s, slots);
  }
}

// What the tree has written to its terminal is delivered, to a slow reader too, unless cancelled.
void drain(Supervision& s) {
  PtyPump& pump = *s.pump;
  raw::call(SYS_close, pump.slave);
  pump.slave = -1;
  uint64_t until = s.cancelled ? raw::now_ns() + kDrainPatience : kForever;
  pollfd slots[kSlots];
  while (pump.master >= 0 || !raw_pump_empty(pump)) {
    const uint64_t now = raw::now_ns();
    if (now >= until) return;
    watch(slots[kEnd], -1);
    watch(slots[kCancel], s.cancelled ? -1 : s.start.cancel_fd);
    watch(slots[kControl], -1);
    watch(slots[kHost], s.host_pidfd);
    raw_pump_wait(pump, false, slots + kPump);
    const uint64_t longest = raw_pump_empty(pump) ? kDrainPatience : kForever;
    const uint64_t left = until == kForever ? longest : until - now;
    const long ready = wait_for(slots, kSlots, left < longest ? left : longest);
    if (ready == 0) return;
    if (ready < 0) continue;
    if (slots[kHost].revents != 0) host_died(s);
    if (slots[kCancel].revents != 0) {
      s.cancelled = true;
      until = now + kDrainPatience;
    }
    raw_pump(pump, slots + kPump);
  }
}

// A program that was killed while its cancellation had fired died of it, whoever was quicker.
void attribute(Supervision& s) {
  if (s.cancelled || s.start.cancel_fd < 0 || (s.result.status & 0x7f) != SIGKILL) return;
  pollfd slot;
  watch(slot, s.start.cancel_fd);
  if (wait_for(&slot, 1, 0) > 0) s.cancelled = s.result.killed = true;
}

void run(Supervision& s) {
  watch_program(s);
  attribute(s);
  if (s.init_socket >= 0) {
    end_init(s);
  } else if (s.supervisor) {
    end_tree(s);
  } else {
    empty_leaf(s);
  }
  if (s.pump != nullptr) drain(s);
  s.result.finished = true;
}

void spawn(Supervision& s) {
  s.result.start_ns = raw::now_ns();
  s.result.spawn_error = raw_spawn(s.plan, &s.start.pidfd, &s.result.pid);
  __atomic_store_n(&s.start.started, 1, __ATOMIC_RELEASE);
}

[[noreturn]] void supervisor_main(void* argument) {
  Supervision& s = *static_cast<Supervision*>(argument);
  const uint64_t by_default[4] = {0, 0, 0, 0};
  raw::call(SYS_rt_sigaction, SIGCHLD, by_default, 0, 8);  // its own table: an ignored SIGCHLD would reap
  raw::call(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  spawn(s);
  if (s.result.spawn_error == 0) run(s);
  s.result.finished = true;
  for (;;) raw::call(SYS_exit_group, 0);
}

}  // namespace

void raw_supervise_leaf(Supervision& s) {
  uint64_t mask = 0;
  raw::block_signals(&mask);
  spawn(s);
  raw::restore_signals(&mask);
  if (s.result.spawn_error == 0) run(s);
  s.result.finished = true;
}

void raw_supervise_init(Supervision& s) { run(s); }

long raw_supervise_child(Supervision& s, void* stack, size_t stack_size) {
  CloneRequest request = {};
  request.flags = CLONE_VM | CLONE_VFORK | CLONE_FILES;
  request.leaf_fd = -1;
  request.stack = stack;
  request.stack_size = stack_size;
  request.entry = supervisor_main;
  request.argument = &s;
  uint64_t mask = 0;
  raw::block_signals(&mask);
  const long supervisor = raw_clone(request);
  raw::restore_signals(&mask);
  if (supervisor < 0) return supervisor;
  long waited = 0;
  do {
    waited = raw::call(SYS_wait4, supervisor, 0, __WALL, 0);
  } while (waited == -EINTR);
  return 0;
}

}  // namespace isogate
