#include "runner/resident/service.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "runner/resident/sessions.h"
#include "runner/syscall_filter.h"

namespace isogate::resident {
namespace {

constexpr uint64_t kEndKey = uint64_t{1} << 40;
constexpr uint64_t kChildKey = kEndKey + 1;
constexpr uint64_t kDoorKey = kEndKey + 2;
constexpr uint64_t kKnockKey = kEndKey + 3;
constexpr int kShortestPause = 20, kLongestPause = 500;  // between two attempts to dial, milliseconds
constexpr int kStrayPause = 20;                          // between two sweeps, milliseconds
constexpr std::chrono::milliseconds kSweepPatience{100};
constexpr int kOverduePause = 25;  // while a supervisor may have been stopped, milliseconds
constexpr int kLookPause = 250;
constexpr std::chrono::seconds kLeaveAfter{15};
constexpr rlim_t kOpenFiles = 65536;

void say(const std::string& line) { std::fprintf(stderr, "isogate-runner: %s\n", line.c_str()); }

void raise_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, kOpenFiles));
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// Of this thread, and of all that it starts from now on: other threads, supervisors and programs. See
// runner/syscall_filter.h. Nothing of a tenant's runs as yet, and nothing is to run without it.
Result<void> guard() {
  auto filter = make_guard_filter();
  if (!filter) return filter.error();
  const sock_fprog program = {static_cast<unsigned short>(filter->size()), filter->data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
    return os_error("cannot install the system call filter", errno);
  return {};
}

// Readable when something in the directory of `socket` has changed. None where the kernel has no watch to
// give.
Fd watch_beside(const std::string& socket) {
  Fd door(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  const std::string directory = socket.substr(0, socket.rfind('/') + 1) + ".";
  if (door && ::inotify_add_watch(door.get(), directory.c_str(), IN_MOVED_TO | IN_CREATE) < 0) door.reset();
  return door;
}

void forget_changes(int door) {
  alignas(inotify_event) char events[4096];
  while (::read(door, events, sizeof events) > 0) {
  }
}

int sooner(int a, int b) { return a < 0 ? b : std::min(a, b); }

}  // namespace

Result<void> Service::open(const Options& options) {
  options_ = options;
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::mallopt(M_ARENA_MAX, 2);
  if (auto opened = signals_.open(); !opened) return opened;
  if (auto opened = poller_.open(); !opened) return opened;
  if (auto watched = poller_.watch(signals_.end_fd(), kEndKey); !watched) return watched;
  if (auto watched = poller_.watch(signals_.child_fd(), kChildKey); !watched) return watched;
  Strays::adopt();
  if (options_.mode == Mode::idle) return {};
  raise_open_files();
  buffer_.resize(ISOGATE_RUNNER_MAX_FRAME);
  if (auto opened = place_.open(options_); !opened) return opened;
  return guard();
}

int Service::run() {
  strays_left_ = true;
  if (options_.mode == Mode::dial) return dial_for_ever();
  if (options_.mode == Mode::serve) return serve_sessions();
  return options_.mode == Mode::stdio ? serve_stdio() : only_reap();
}

void Service::sweep() { strays_left_ = !place_.strays().sweep(kSweepPatience); }

// Waits once, and acts on what has happened.
void Service::attend(Session* session, int patience_ms) {
  if (strays_left_) patience_ms = sooner(patience_ms, kStrayPause);
  const auto& ready = poller_.wait(patience_ms);
  bool look = strays_left_;
  for (const uint64_t key : ready) {
    if (key == kEndKey) {
      ending_ = signals_.should_end();
    } else if (key == kChildKey) {
      signals_.forget_children();
      look = true;
    } else if (key == kDoorKey) {
      forget_changes(door_.get());
    } else if (session != nullptr) {
      session->pump(key, buffer_);
    }
  }
  if (look) sweep();
}

// Whoever stops a supervisor keeps a cancelled call from ending.
void Service::look_after(Session& session) {
  const Clock::duration overdue = session.rouse();
  if (overdue > kLeaveAfter && ending_) {
    say("a call does not end, leaving");
    ::_exit(1);
  }
  attend(&session, overdue > Clock::duration::zero() ? kOverduePause : -1);
}

bool Service::serve(Fd in, Fd out) {
  auto connection = PlainConnection::make(std::move(in), std::move(out), signals_.end_fd(),
                                          [this] { return signals_.should_end(); });
  if (!connection) {
    say(connection.error().message);
    return false;
  }
  Session session(place_, **connection, poller_);
  if (auto started = session.start(); !started) {
    say(started.error().message);
    return false;
  }
  while (!session.is_over()) {
    ending_ = ending_ || signals_.should_end();
    if (ending_) session.stop();
    look_after(session);
  }
  if (const std::string why = session.why(); !why.empty()) say("the client sent " + why);
  return session.greeted();
}

std::optional<Fd> Service::dial() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  options_.socket.copy(address.sun_path, sizeof address.sun_path - 1);
  while (!ending_) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket && ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      door_.reset();
      return socket;
    }
    if (!door_) {
      door_ = watch_beside(options_.socket);
      if (door_ && poller_.watch(door_.get(), kDoorKey)) continue;
      door_.reset();
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
    say(os_error("cannot take over the input and the output", errno).message);
    return 1;
  }
  return serve(std::move(in), std::move(out)) ? 0 : 1;
}

int Service::serve_sessions() {
  Door door;
  if (auto opened = door.open(options_.door, poller_, kKnockKey); !opened) {
    say(opened.error().message);
    return 1;
  }
  Sessions sessions(place_, poller_);
  std::optional<Clock::time_point> ends;
  while (!ending_ || !sessions.empty()) {
    if (ending_ && !ends) {
      sessions.stop();
      ends = Clock::now() + kLeaveAfter;
    }
    attend(nullptr, door.is_busy() || ending_ ? kLookPause : -1);
    for (Visitor& visitor : door.look()) sessions.receive(std::move(visitor));
    for (const std::string& why : sessions.reap()) say("the client sent " + why);
    if (!ends || Clock::now() < *ends) continue;
    say("a call does not end, leaving");
    ::_exit(1);
  }
  return 0;
}

int Service::only_reap() {
  while (!ending_) attend(nullptr, -1);
  return 0;
}

}  // namespace isogate::resident
