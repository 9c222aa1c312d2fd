// Raw code: see raw_syscall.h.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "runner/enclosure/init/init.h"
#include "runner/exec/raw_syscall.h"

namespace isogate {
namespace {

constexpr uint64_t kPatience = 200'000'000;

long connect_to(long socket, const InitAddress& address) {
  const auto port = static_cast<uint16_t>(address.port << 8 | (address.port >> 8 & 0xff));
  if (address.family == AF_INET) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = port;
    for (int i = 0; i < 4; ++i) reinterpret_cast<uint8_t*>(&to.sin_addr)[i] = address.bytes[i];
    return raw::call(SYS_connect, socket, &to, sizeof to);
  }
  sockaddr_in6 to = {};
  to.sin6_family = AF_INET6;
  to.sin6_port = port;
  for (int i = 0; i < 16; ++i) to.sin6_addr.s6_addr[i] = address.bytes[i];
  return raw::call(SYS_connect, socket, &to, sizeof to);
}

// The results of connect(2) for an address that was really tried. Any other error, for example of memory or
// descriptors, is no outcome.
InitReach outcome_of(long result) {
  switch (-result) {
    case 0:
    case ECONNRESET:
      return kAnswered;
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case EADDRNOTAVAIL:
    case ETIMEDOUT:
    case EACCES:
    case EPERM:
      return kSilent;
    default:
      return kUntried;
  }
}

InitReach try_address(const InitAddress& address) {
  const long socket = raw::call(SYS_socket, address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return kUntried;
  long result = connect_to(socket, address);
  if (result == -EINPROGRESS) {
    pollfd slot = {static_cast<int>(socket), POLLOUT, 0};
    const raw::Time time = raw::time_of(kPatience);
    const long ready = raw::call(SYS_ppoll, &slot, 1, &time, 0, 8);
    result = ready == 0 ? -ETIMEDOUT : ready;
    if (ready == 1) {
      int error = 0, size = sizeof error;
      const long asked = raw::call(SYS_getsockopt, socket, SOL_SOCKET, SO_ERROR, &error, &size);
      result = asked < 0 ? asked : -error;
    }
  }
  raw::call(SYS_close, socket);
  return outcome_of(result);
}

}  // namespace

void raw_measure_inside(void* argument) {
  InitPortrait& portrait = *static_cast<InitPortrait*>(argument);
  for (uint32_t i = 0; i < portrait.address_count; ++i) {
    portrait.reached[i] = try_address(portrait.addresses[i]);
  }
  raw_take_portrait(&portrait.self);
}

}  // namespace isogate
