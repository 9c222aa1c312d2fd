#include "runner/agent/link/listener.h"

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

#include "runner/cgroup/cgroup_detect.h"

namespace isogate::agent {
namespace {

constexpr size_t kMostHandshakes = 16;
constexpr int kMostAtOnce = 64, kBacklog = 128;
// Longer than a client's attempt (ResumeOptions): it may have to check first which container it has reached.
constexpr std::chrono::seconds kHandshakePatience{15};

// The parent in /proc/PID/stat, after the name in parentheses; -1: it has ended. For one that is just
// being released, the kernel reports parent 0 and group -1.
int parent_in(int process) {
  const std::string stat = read_small_file(process, "stat");
  const size_t name = stat.rfind(')');
  if (name == std::string::npos) return -1;
  char state = 'X';
  int parent = -1, group = -1;
  if (std::sscanf(stat.c_str() + name + 1, " %c %d %d", &state, &parent, &group) != 3) return -1;
  return state == 'X' || state == 'Z' || group < 0 ? -1 : parent;
}

}  // namespace

unsigned address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<unsigned>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Result<void> Listener::open(const std::string& name, Poller& poller, uint64_t key) {
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

std::vector<Peer> Listener::take_peers() {
  accept();
  std::vector<Peer> peers;
  std::erase_if(handshakes_, [&](Handshake& handshake) {
    const Step step = advance(handshake);
    if (step == Step::kDone) {
      Peer peer{std::move(handshake.stream), {}};
      std::memcpy(&peer.request, handshake.request.data(), sizeof peer.request);
      peers.push_back(std::move(peer));
    }
    if (step == Step::kWait && Clock::now() < handshake.until) return false;
    if (step != Step::kDone) forget(handshake);
    return true;
  });
  return peers;
}

// Another process may share its descriptors, so closing them does not end their watch.
void Listener::forget(const Handshake& handshake) {
  if (handshake.stream.in) poller_->forget(handshake.stream.in.get());
  poller_->forget(handshake.stream.socket.get());
}

// Without a free descriptor the poller would report the same connection forever.
void Listener::pause_if(bool no_descriptors) {
  if (no_descriptors == is_paused_) return;
  is_paused_ = no_descriptors;
  if (is_paused_)
    poller_->forget(listener_.get());
  else if (!poller_->watch(listener_.get(), key_))
    is_paused_ = true;
}

void Listener::accept() {
  for (int times = 0; times < kMostAtOnce; ++times) {
    Handshake handshake;
    handshake.stream.socket = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!handshake.stream.socket) return pause_if(errno != EAGAIN && errno != EINTR && errno != ECONNABORTED);
    if (handshakes_.size() >= kMostHandshakes || !challenge(handshake)) continue;
    handshake.until = Clock::now() + kHandshakePatience;
    handshakes_.push_back(std::move(handshake));
  }
}

// False: it must not be accepted.
bool Listener::challenge(Handshake& handshake) {
  const int socket = handshake.stream.socket.get(), on = 1;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid())
    return false;
  handshake.pid = peer.pid;
  handshake.process =
      Fd(::openat(AT_FDCWD, ("/proc/" + std::to_string(peer.pid)).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!handshake.process || parent_in(handshake.process.get()) != ::getppid()) return false;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return false;
  if (::getrandom(&handshake.number, sizeof handshake.number, 0) != sizeof handshake.number) return false;
  if (::send(socket, &handshake.number, sizeof handshake.number, MSG_NOSIGNAL) != sizeof handshake.number)
    return false;
  return static_cast<bool>(poller_->watch(socket, key_));
}

Listener::Step Listener::advance(Handshake& handshake) {
  if (!handshake.stream.in) {
    const Step step = read_answer(handshake);
    if (step != Step::kDone) return step;
  }
  return read_request(handshake);
}

// The number, the sender's pid by the kernel, and two descriptors.
Listener::Step Listener::read_answer(Handshake& handshake) {
  uint64_t number = 0;
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(2 * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(handshake.stream.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Step::kWait;
  ucred sender{};
  std::vector<Fd> fds;
  if (got > 0)
    fds = received_descriptors(message, [&sender](cmsghdr& each) {
      if (each.cmsg_level == SOL_SOCKET && each.cmsg_type == SCM_CREDENTIALS)
        std::memcpy(&sender, CMSG_DATA(&each), sizeof sender);
    });
  const bool is_it = got == sizeof number && number == handshake.number && sender.pid == handshake.pid &&
                     (message.msg_flags & MSG_CTRUNC) == 0 && fds.size() == 2;
  if (!is_it || parent_in(handshake.process.get()) != ::getppid()) return Step::kFailed;
  if (!make_non_blocking(fds[0].get()) || !make_non_blocking(fds[1].get())) return Step::kFailed;
  handshake.stream.in = std::move(fds[0]);
  handshake.stream.out = std::move(fds[1]);
  poller_->forget(handshake.stream.socket.get());
  return poller_->watch(handshake.stream.in.get(), key_) ? Step::kDone : Step::kFailed;
}

// The client's resume request.
Listener::Step Listener::read_request(Handshake& handshake) {
  std::array<char, sizeof(isogate_runner_resume)> bytes;
  const ssize_t got =
      ::read(handshake.stream.in.get(), bytes.data(), bytes.size() - handshake.request.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Step::kWait;
  if (got <= 0) return Step::kFailed;
  handshake.request.append(bytes.data(), static_cast<size_t>(got));
  if (handshake.request.size() < bytes.size()) return Step::kWait;
  forget(handshake);
  return Step::kDone;
}

}  // namespace isogate::agent
