// Connections to the loopback of a network namespace, and their bytes.
//
// A socket belongs permanently to the network in which it was made: dial() and carry() may run anywhere.
// Any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "lib/fd.h"

namespace isogate {

// Unconnected and non-blocking, of the network that the caller is in.
struct PortSockets {
  Fd four, six;  // six: empty where this kernel has no IPv6
};
Result<PortSockets> make_port_sockets();

// Connects to 127.0.0.1, then to [::1]. Errors: ISOGATE_NOT_FOUND when nothing accepts connections there
// (ECONNREFUSED; ETIMEDOUT after five seconds), ISOGATE_CANCELLED, other errors of the kernel.
Result<Fd> dial(PortSockets sockets, uint16_t port, int cancel_fd);

struct Carried {
  int socket;                       // non-blocking
  int in_fd, out_fd;                // to the socket, from it; may be the same
  std::function<void()> out_ended;  // nothing more comes out of the socket: all of it is in out_fd
  int cancel_fd = -1;
};

// Copies until both directions have ended. The end of in_fd is passed on to the socket, and the end of the
// socket to out_fd. Holds at most 64 KiB of each direction. Errors: ISOGATE_CANCELLED, also when out_fd has
// no reader; ISOGATE_IO when the connection broke off.
Result<void> carry(const Carried& carried);

// carry() between a socket and the caller's socket: each shutdown is passed on.
Result<void> carry_stream(int socket, int stream_fd, int cancel_fd);

}  // namespace isogate
