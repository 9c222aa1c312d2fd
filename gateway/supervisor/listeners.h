// The listening sockets. The supervisor opens them once and keeps them while it runs, so that clients
// queue while a front restarts.
#pragma once

#include <string>
#include <vector>

#include "gateway/config/config.h"
#include "lib/fd.h"

namespace isogate::supervisor {

struct Listener {
  std::string address;  // as it really is: port 0 is replaced by the kernel's choice
  std::string path;     // of a Unix socket; empty: TCP
  bool loopback = true;
  ListenerKind kind = ListenerKind::kNative;
  Fd socket;  // listening, non-blocking, close-on-exec
};

// Every address of `listen`, <state-dir>/isogate.sock (0600) when none of them is a Unix socket, `e2b.listen`
// and `metrics.listen`. `localhost` is 127.0.0.1. An address beyond loopback (by getsockname(2)) is refused
// without configured keys or client certificates, except for metrics. A stale socket file is removed when it
// is this user's and no process accepts on it. An address in use is tried again for 2 s.
Result<std::vector<Listener>> open_listeners(const Config& config, const std::string& state_path);

// Bound to HOST:PORT, `listen`'s form, and not listening. `remedy`: with what one chooses another port.
Result<Listener> open_tcp(const std::string& address, const std::string& remedy);

// The reason why these listeners must not be served with this configuration.
Result<void> check_listener_keys(const std::vector<Listener>& listeners, const Config& config);

void remove_socket_files(const std::vector<Listener>& listeners);

}  // namespace isogate::supervisor
