#include "runner/enclosure/init_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace isogate {
namespace {

// Returns once the socket is ready, or after a signal. ISOGATE_CANCELLED when cancel_fd fires first.
Result<void> wait_for_init(int socket, int16_t events, int patience_ms, int cancel_fd) {
  pollfd slots[2] = {{socket, events, 0}, {cancel_fd, POLLIN, 0}};
  const int ready = ::poll(slots, 2, patience_ms);
  if (ready == 0) return os_error("the sandbox's init does not answer", ETIMEDOUT);
  if (ready < 0 && errno != EINTR) return os_error("cannot wait for the sandbox's init", errno);
  if (ready > 0 && slots[1].revents != 0)
    return Error{ISOGATE_CANCELLED, 0, "cancelled before the program was started"};
  return {};
}

Result<void> send_all(int socket, std::string_view bytes, int cancel_fd) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return os_error("cannot speak to the sandbox's init", errno);
    if (auto ready = wait_for_init(socket, POLLOUT, -1, cancel_fd); !ready) return ready;
  }
  return {};
}

}  // namespace

Result<void> send_order(int socket, InitOrderKind kind, std::string_view body,
                        const std::vector<int>& descriptors, int cancel_fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * (3 + kInitMostJoins))] = {};
  InitOrder order = {kind, static_cast<uint32_t>(body.size()), 0, static_cast<uint32_t>(descriptors.size())};
  iovec parts[2] = {{&order, sizeof order}, {const_cast<char*>(body.data()), body.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  attach_descriptors(message, control, descriptors);
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < static_cast<ssize_t>(sizeof order))
    return os_error("cannot speak to the sandbox's init", sent < 0 ? errno : EPROTO);
  return send_all(socket, body.substr(static_cast<size_t>(sent) - sizeof order), cancel_fd);
}

Result<void> receive_from_init(int socket, void* to, size_t size, int patience_ms, int cancel_fd) {
  char* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::recv(socket, at, size, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return os_error("the sandbox's init has ended", EPIPE);
    if (got > 0) {
      at += got;
      size -= static_cast<size_t>(got);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return os_error("cannot receive from the sandbox's init", errno);
    if (auto ready = wait_for_init(socket, POLLIN, patience_ms, cancel_fd); !ready) return ready;
  }
  return {};
}

}  // namespace isogate
