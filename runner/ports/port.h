// Connections to the loopback of a network namespace, and the bytes that they carry.
//
// A socket belongs to the network of whoever makes it, for good: dial() and carry() may run anywhere. Any
// thread.
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
// (ECONNREFUSED; ETIMEDOUT after five seconds), ISOGATE_CANCELLED, what else the kernel says.
Result<Fd> dial(PortSockets sockets, uint16_t port, int cancel_fd);

struct Carried {
  int socket;                       // non-blocking
  int in_fd, out_fd;                // to the socket, from it; may be the same
  std::function<void()> out_ended;  // nothing more comes out of the socket: all of it is in out_fd
  int cancel_fd = -1;
};

// Until both directions have ended. The end of in_fd becomes that of the socket's input, and so the other way
// round. Holds at most 64 KiB of each direction. Errors: ISOGATE_CANCELLED, also when nobody reads out_fd any
// more; ISOGATE_IO when the connection broke off.
Result<void> carry(const Carried& carried);

// carry() between a socket and one to the program that asked for it: each shutdown is passed on.
Result<void> carry_stream(int socket, int stream_fd, int cancel_fd);

}  // namespace isogate
