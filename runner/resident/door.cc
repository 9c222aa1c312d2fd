#include "runner/resident/door.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "runner/cgroup_detect.h"

namespace isogate::resident {
namespace {

constexpr size_t kMostKnocks = 16;
constexpr int kMostAtOnce = 64, kBacklog = 128;
constexpr std::chrono::seconds kPatience{5};

// The parent, as /proc/PID/stat has it behind the name in parentheses; -1: it has ended. Of one that is just
// being released the kernel says parent 0 and group -1.
int parent_in(int process) {
  const std::string stat = read_small_file(process, "stat");
  const size_t name = stat.rfind(')');
  if (name == std::string::npos) return -1;
  char state = 'X';
  int parent = -1, group = -1;
  if (std::sscanf(stat.c_str() + name + 1, " %c %d %d", &state, &parent, &group) != 3) return -1;
  return state == 'X' || state == 'Z' || group < 0 ? -1 : parent;
}

bool make_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace

unsigned address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<unsigned>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Result<void> Door::open(const std::string& name, Poller& poller, uint64_t key) {
  poller_ = &poller;
  key_ = key;
  sockaddr_un address;
  const unsigned size = address_of(name, address);
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_ || ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0)
    return os_error("cannot listen at the abstract socket `" + name + "`", errno);
  return poller.watch(listener_.get(), key);
}

std::vector<Visitor> Door::look() {
  accept();
  std::vector<Visitor> in;
  std::erase_if(knocks_, [&](Knock& knock) {
    const Step step = advance(knock);
    if (step == Step::kIn) {
      Visitor visitor{std::move(knock.stream), {}};
      std::memcpy(&visitor.said, knock.said.data(), sizeof visitor.said);
      in.push_back(std::move(visitor));
    }
    if (step == Step::kWait && Clock::now() < knock.until) return false;
    if (step != Step::kIn) forget(knock);
    return true;
  });
  return in;
}

// Its descriptors may be somebody else's too, so that closing them ends no watch.
void Door::forget(const Knock& knock) {
  if (knock.stream.in) poller_->forget(knock.stream.in.get());
  poller_->forget(knock.stream.socket.get());
}

// The poller would tell of the same one for ever.
void Door::shut_if(bool none_left) {
  if (none_left == is_shut_) return;
  is_shut_ = none_left;
  if (is_shut_)
    poller_->forget(listener_.get());
  else if (!poller_->watch(listener_.get(), key_))
    is_shut_ = true;
}

void Door::accept() {
  for (int times = 0; times < kMostAtOnce; ++times) {
    Knock knock;
    knock.stream.socket = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!knock.stream.socket) return shut_if(errno != EAGAIN && errno != EINTR && errno != ECONNABORTED);
    if (knocks_.size() >= kMostKnocks || !ask(knock)) continue;
    knock.until = Clock::now() + kPatience;
    knocks_.push_back(std::move(knock));
  }
}

// False: it has no business here.
bool Door::ask(Knock& knock) {
  const int socket = knock.stream.socket.get(), on = 1;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid())
    return false;
  knock.pid = peer.pid;
  knock.process =
      Fd(::openat(AT_FDCWD, ("/proc/" + std::to_string(peer.pid)).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!knock.process || parent_in(knock.process.get()) != ::getppid()) return false;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return false;
  if (::getrandom(&knock.number, sizeof knock.number, 0) != sizeof knock.number) return false;
  if (::send(socket, &knock.number, sizeof knock.number, MSG_NOSIGNAL) != sizeof knock.number) return false;
  return static_cast<bool>(poller_->watch(socket, key_));
}

Door::Step Door::advance(Knock& knock) {
  if (!knock.stream.in) {
    const Step step = take_answer(knock);
    if (step != Step::kIn) return step;
  }
  return take_words(knock);
}

// The number, the sender's pid by the kernel, and two descriptors.
Door::Step Door::take_answer(Knock& knock) {
  uint64_t number = 0;
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(2 * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(knock.stream.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Step::kWait;
  ucred sender{};
  std::vector<Fd> fds;
  for (cmsghdr* each = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr; each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET) continue;
    if (each->cmsg_type == SCM_CREDENTIALS) std::memcpy(&sender, CMSG_DATA(each), sizeof sender);
    const size_t count = each->cmsg_type == SCM_RIGHTS ? (each->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  const bool is_it = got == sizeof number && number == knock.number && sender.pid == knock.pid &&
                     (message.msg_flags & MSG_CTRUNC) == 0 && fds.size() == 2;
  if (!is_it || parent_in(knock.process.get()) != ::getppid()) return Step::kGone;
  if (!make_non_blocking(fds[0].get()) || !make_non_blocking(fds[1].get())) return Step::kGone;
  knock.stream.in = std::move(fds[0]);
  knock.stream.out = std::move(fds[1]);
  poller_->forget(knock.stream.socket.get());
  return poller_->watch(knock.stream.in.get(), key_) ? Step::kIn : Step::kGone;
}

// What its client says first.
Door::Step Door::take_words(Knock& knock) {
  std::array<char, sizeof(isogate_runner_resume)> words;
  const ssize_t got = ::read(knock.stream.in.get(), words.data(), words.size() - knock.said.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Step::kWait;
  if (got <= 0) return Step::kGone;
  knock.said.append(words.data(), static_cast<size_t>(got));
  if (knock.said.size() < words.size()) return Step::kWait;
  forget(knock);
  return Step::kIn;
}

}  // namespace isogate::resident
