#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "lib/fd.h"
#include "runner/agent/link/listener.h"

namespace isogate::agent {
namespace {

constexpr std::chrono::seconds kAttachPatience{5};  // for a server that is just being started
constexpr std::chrono::milliseconds kPause{10};     // no event announces an abstract socket
constexpr timeval kAnswer{10, 0};

Result<Fd> connect_to(const std::string& name) {
  sockaddr_un address;
  const unsigned size = address_of(name, address);
  for (const auto since = std::chrono::steady_clock::now();; std::this_thread::sleep_for(kPause)) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket && ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) return socket;
    const bool late = std::chrono::steady_clock::now() - since > kAttachPatience;
    if (!socket || errno != ECONNREFUSED || late)
      return os_error("cannot connect to the abstract socket `" + name + "`", errno);
  }
}

Result<void> check_peer(int socket, const std::string& server) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return os_error("cannot identify the server", errno);
  if (std::to_string(peer.pid) == server && peer.uid == ::geteuid()) return {};
  return Error{ISOGATE_UNAVAILABLE, 0,
               "the server is the process " + std::to_string(peer.pid) + " of user " +
                   std::to_string(peer.uid) + ", not " + server + " of this process's user"};
}

// Sends them back with the number that the server sent.
Result<void> give(int socket, std::array<int, 2> fds) {
  uint64_t number = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kAnswer, sizeof kAnswer);
  if (::recv(socket, &number, sizeof number, MSG_WAITALL) != sizeof number)
    return Error{ISOGATE_UNAVAILABLE, 0, "the server refuses this process"};
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fds)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  attach_descriptors(message, control.data(), fds);
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != sizeof number)
    return os_error("cannot pass the input and the output", errno);
  return {};
}

}  // namespace

Result<void> attach(const Options& options) {
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  auto socket = connect_to(options.listener);
  if (!socket) return socket.error();
  if (auto checked = check_peer(socket->get(), options.server); !checked) return checked;
  if (auto given = give(socket->get(), {STDIN_FILENO, STDOUT_FILENO}); !given) return given;
  // So that both end when the server closes them.
  const Fd null_device(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_device || ::dup2(null_device.get(), STDIN_FILENO) < 0 ||
      ::dup2(null_device.get(), STDOUT_FILENO) < 0)
    return os_error("cannot release the input and the output", errno);
  constexpr timeval kForEver{};
  ::setsockopt(socket->get(), SOL_SOCKET, SO_RCVTIMEO, &kForEver, sizeof kForEver);
  for (char byte = 0;;) {
    const ssize_t got = ::recv(socket->get(), &byte, 1, 0);
    if (got == 0 || (got < 0 && errno != EINTR)) return {};
  }
}

}  // namespace isogate::agent
