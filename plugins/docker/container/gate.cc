#include "plugins/docker/container/gate.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/net/budget.h"
#include "plugins/common/or_throw.h"
#include "plugins/docker/container/profile.h"

namespace isogate::docker {
namespace {

// Short whatever the directory's own path: sun_path has 108 bytes.
sockaddr_un address_in(int directory, const char* name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(directory) + "/" + name;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Under another name until it listens: a runner that watches the directory connects as soon as the socket has
// its name.
constexpr char kNotYet[] = "not-yet";

}  // namespace

Gate::Gate(int directory) : directory_(directory) {
  if (::unlinkat(directory, kNotYet, 0) != 0 && errno != ENOENT)
    fail_with_io("cannot remove the old socket of the runner", errno);
  listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) fail_with_io("cannot make a socket for the runner", errno);
  const sockaddr_un address = address_in(directory, kNotYet);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fail_with_io("cannot bind the socket of the runner", errno);
  // Only the sandbox's own user can enter the directory; the kernel reports the peer's pid.
  if (::fchmodat(directory, kNotYet, 0666, 0) != 0)
    fail_with_io("cannot open the socket of the runner", errno);
  if (::listen(listener_.get(), 16) != 0) fail_with_io("cannot listen for the runner", errno);
  struct stat info {};
  if (::fstatat(directory, kNotYet, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::renameat(directory, kNotYet, directory, kSocketName) != 0)
    fail_with_io("cannot name the socket of the runner", errno);
  inode_ = info.st_ino;
}

Gate::~Gate() {
  struct stat info {};
  const bool mine =
      ::fstatat(directory_, kSocketName, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_ino == inode_;
  if (mine) ::unlinkat(directory_, kSocketName, 0);
}

Fd Gate::accept_one(int pid) {
  Fd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!peer) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return {};
    fail_with_io("cannot accept the runner", errno);
  }
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.pid != pid) {
    ++strangers_;
    return {};
  }
  return peer;
}

Fd Gate::accept(int pid, std::chrono::milliseconds patience, const sdk::Call& call) {
  const net::Budget budget(patience, call.cancel_fd());
  for (;;) {
    const auto outcome = budget.wait(listener_.get(), POLLIN);
    if (outcome == net::Budget::Outcome::kCancelled) throw sdk::Error(ISOGATE_CANCELLED, "cancelled");
    if (outcome == net::Budget::Outcome::kLate) return {};
    if (Fd peer = accept_one(pid)) return peer;
    if (budget.over()) return {};
  }
}

}  // namespace isogate::docker
