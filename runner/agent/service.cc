#include "runner/agent/service.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <initializer_list>

#include "runner/agent/link/sessions.h"
#include "runner/enclosure/syscall_filter.h"

namespace isogate::agent {
namespace {

constexpr uint64_t kEndKey = uint64_t{1} << 40;
constexpr uint64_t kChildKey = kEndKey + 1;
constexpr uint64_t kSocketKey = kEndKey + 2;
constexpr uint64_t kListenerKey = kEndKey + 3;
// Milliseconds between two attempts to dial: no event announces that an existing socket is listening.
constexpr int kShortestPause = 20, kLongestPause = 500;
// Milliseconds between two sweeps: no event announces that a process becomes an orphan.
constexpr int kOrphanPause = 20;
constexpr std::chrono::milliseconds kLastSweepPatience{100};
// Milliseconds while a reaper may have been stopped: a child without an exit signal reports no stop.
constexpr int kOverdueSignalPause = 25;
constexpr int kLookPause = 250;  // milliseconds, for things with a deadline
constexpr std::chrono::seconds kLeaveAfter{15};
constexpr rlim_t kOpenFiles = 65536;

void report(const std::string& line) { std::fprintf(stderr, "isogate-runner: %s\n", line.c_str()); }

void raise_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, kOpenFiles));
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// Of this thread, and of everything that it starts from now on: other threads, reapers and programs. See
// runner/enclosure/syscall_filter.h. No program of a tenant runs yet, and none may run without it.
Result<void> guard() {
  auto filter = make_guard_filter();
  if (!filter) return filter.error();
  const sock_fprog program = {static_cast<unsigned short>(filter->size()), filter->data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
    return os_error("cannot install the system call filter", errno);
  return {};
}

// Readable when something in the directory of `socket` has changed. Empty where the kernel has no watch left.
Fd watch_beside(const std::string& socket) {
  Fd watch(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  const std::string directory = socket.substr(0, socket.rfind('/') + 1) + ".";
  if (watch && ::inotify_add_watch(watch.get(), directory.c_str(), IN_MOVED_TO | IN_CREATE) < 0)
    watch.reset();
  return watch;
}

void forget_changes(int watch) {
  alignas(inotify_event) char events[4096];
  while (::read(watch, events, sizeof events) > 0) {
  }
}

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set{};
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}

Fd descriptor_for(std::initializer_list<int> signals) {
  const sigset_t set = set_of(signals);
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool from_outside(const signalfd_siginfo& info) { return info.ssi_code == SI_USER && info.ssi_pid == 0; }

int sooner(int a, int b) { return a < 0 ? b : std::min(a, b); }

}  // namespace

Result<void> Signals::open() {
  const sigset_t blocked = set_of({SIGTERM, SIGINT, SIGHUP, SIGCHLD});
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  end_ = descriptor_for({SIGTERM, SIGINT});
  child_ = descriptor_for({SIGCHLD});
  if (!end_ || !child_) return os_error("cannot take signals from a descriptor", errno);
  return {};
}

bool Signals::should_end() {
  signalfd_siginfo info{};
  while (::read(end_.get(), &info, sizeof info) == sizeof info) {
    if (::getpid() != 1 || info.ssi_code == SI_KERNEL || from_outside(info)) ending_ = true;
  }
  return ending_;
}

void Signals::forget_children() const {
  signalfd_siginfo info{};
  while (::read(child_.get(), &info, sizeof info) == sizeof info) {
  }
}

Result<void> Service::open(const Options& options) {
  options_ = options;
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::mallopt(M_ARENA_MAX, 2);
  if (auto opened = signals_.open(); !opened) return opened;
  if (auto opened = poller_.open(); !opened) return opened;
  if (auto watched = poller_.watch(signals_.end_fd(), kEndKey); !watched) return watched;
  if (auto watched = poller_.watch(signals_.child_fd(), kChildKey); !watched) return watched;
  Orphans::adopt();
  if (options_.mode == Mode::idle) return {};
  raise_open_files();
  buffer_.resize(ISOGATE_RUNNER_MAX_FRAME);
  if (auto opened = place_.open(options_); !opened) return opened;
  return guard();
}

int Service::run() {
  orphans_left_ = true;
  if (options_.mode == Mode::dial) return dial_for_ever();
  if (options_.mode == Mode::serve) return serve_sessions();
  return options_.mode == Mode::stdio ? serve_stdio() : only_reap();
}

void Service::sweep() { orphans_left_ = !place_.orphans().sweep(kLastSweepPatience); }

// Waits once, and handles what has happened.
void Service::attend(Session* session, int patience_ms) {
  if (orphans_left_) patience_ms = sooner(patience_ms, kOrphanPause);
  const auto& ready = poller_.wait(patience_ms);
  bool look = orphans_left_;
  for (const uint64_t key : ready) {
    if (key == kEndKey) {
      ending_ = signals_.should_end();
    } else if (key == kChildKey) {
      signals_.forget_children();
      look = true;
    } else if (key == kSocketKey) {
      forget_changes(socket_watch_.get());
    } else if (session != nullptr) {
      session->pump(key, buffer_);
    }
  }
  if (look) sweep();
}

// A tenant that stops a reaper keeps a cancelled call from ending.
void Service::look_after(Session& session) {
  const Clock::duration overdue = session.handle_overdue();
  if (overdue > kLeaveAfter && ending_) {
    report("a call does not end; exiting");
    ::_exit(1);
  }
  attend(&session, overdue > Clock::duration::zero() ? kOverdueSignalPause : -1);
}

bool Service::serve(Fd in, Fd out) {
  auto connection = PlainConnection::make(std::move(in), std::move(out), signals_.end_fd(),
                                          [this] { return signals_.should_end(); });
  if (!connection) {
    report(connection.error().message);
    return false;
  }
  Session session(place_, **connection, poller_);
  if (auto started = session.start(); !started) {
    report(started.error().message);
    return false;
  }
  while (!session.is_over()) {
    ending_ = ending_ || signals_.should_end();
    if (ending_) session.stop();
    look_after(session);
  }
  if (const std::string why = session.why(); !why.empty()) report("the client sent " + why);
  return session.greeted();
}

std::optional<Fd> Service::dial() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  options_.socket.copy(address.sun_path, sizeof address.sun_path - 1);
  while (!ending_) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket && ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      socket_watch_.reset();
      return socket;
    }
    if (!socket_watch_) {
      socket_watch_ = watch_beside(options_.socket);
      if (socket_watch_ && poller_.watch(socket_watch_.get(), kSocketKey)) continue;
      socket_watch_.reset();
    }
    pause_ms_ = std::clamp(pause_ms_ * 2, kShortestPause, kLongestPause);
    attend(nullptr, pause_ms_);
  }
  return std::nullopt;
}

int Service::dial_for_ever() {
  for (;;) {
    auto socket = dial();
    if (!socket) return 0;
    const bool greeted = serve(std::move(*socket), Fd());
    if (greeted) pause_ms_ = 0;
    if (ending_) return 0;
    if (greeted) continue;
    pause_ms_ = std::clamp(pause_ms_ * 2, kShortestPause, kLongestPause);
    attend(nullptr, pause_ms_);
  }
}

int Service::serve_stdio() {
  Fd in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  Fd out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const Fd null_device(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!in || !out || !null_device || ::dup2(null_device.get(), STDIN_FILENO) < 0 ||
      ::dup2(null_device.get(), STDOUT_FILENO) < 0) {
    report(os_error("cannot take over the input and the output", errno).message);
    return 1;
  }
  return serve(std::move(in), std::move(out)) ? 0 : 1;
}

int Service::serve_sessions() {
  Listener listener;
  if (auto opened = listener.open(options_.listener, poller_, kListenerKey); !opened) {
    report(opened.error().message);
    return 1;
  }
  Sessions sessions(place_, poller_);
  std::optional<Clock::time_point> ends;
  while (!ending_ || !sessions.empty()) {
    if (ending_ && !ends) {
      sessions.stop();
      ends = Clock::now() + kLeaveAfter;
    }
    attend(nullptr, listener.is_busy() || ending_ ? kLookPause : -1);
    for (Peer& peer : listener.take_peers()) sessions.receive(std::move(peer));
    for (const std::string& why : sessions.reap()) report("the client sent " + why);
    if (!ends || Clock::now() < *ends) continue;
    report("a call does not end; exiting");
    ::_exit(1);
  }
  return 0;
}

int Service::only_reap() {
  while (!ending_) attend(nullptr, -1);
  return 0;
}

}  // namespace isogate::agent
