#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "descriptor.h"
#include "isogate/runner_link.hpp"

namespace isogate::sdk {
namespace {

constexpr size_t kMostDescriptors = 3;

class SocketStream final : public RunnerStream {
 public:
  SocketStream(int fd, bool descriptors, std::optional<uid_t> user)
      : fd_(fd), descriptors_(descriptors), user_(user) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
      fail_with_errno("cannot use the socket of a runner", errno);
  }

  [[nodiscard]] int fd() const override { return fd_.get(); }
  ssize_t read_some(char* to, size_t size) override { return ::recv(fd(), to, size, 0); }
  ssize_t write_some(const char* from, size_t size) override {
    return ::send(fd(), from, size, MSG_NOSIGNAL);
  }
  [[nodiscard]] bool carries_descriptors() const override { return descriptors_; }
  [[nodiscard]] int64_t user() const override {
    if (descriptors_ && user_) return *user_;
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool known = descriptors_ && ::getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    return known ? int64_t{peer.uid} : -1;
  }
  void shutdown() override { ::shutdown(fd(), SHUT_RDWR); }

  ssize_t write_with(const char* from, size_t size, const int* fds, size_t count) override {
    if (!descriptors_ || count > kMostDescriptors) return RunnerStream::write_with(from, size, fds, count);
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
    iovec part{const_cast<char*>(from), size};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    return ::sendmsg(fd(), &message, MSG_NOSIGNAL);
  }

 private:
  const link::Descriptor fd_;
  const bool descriptors_;
  const std::optional<uid_t> user_;
};

}  // namespace

ssize_t RunnerStream::write_with(const char*, size_t, const int*, size_t) {
  errno = EOPNOTSUPP;
  return -1;
}

bool RunnerStream::hung_up() const {
  pollfd one{fd(), POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0;
}

std::unique_ptr<RunnerStream> socket_stream(int fd, bool descriptors, std::optional<uid_t> user) {
  return std::make_unique<SocketStream>(fd, descriptors, user);
}

}  // namespace isogate::sdk
