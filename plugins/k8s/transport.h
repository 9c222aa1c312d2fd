// One connection to an API server, plain or TLS, through a proxy or not, non-blocking. One thread may read
// while another one writes; shutdown() is for any thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "plugins/k8s/access.h"
#include "plugins/k8s/budget.h"
#include "runner/fd.h"

namespace isogate::k8s {

class Transport {
 public:
  virtual ~Transport() = default;
  // Throws ApiError: ISOGATE_UNAVAILABLE, ISOGATE_INVALID_ARGUMENT for a certificate, key or authority that
  // is none, or ISOGATE_CANCELLED. `identity`: whose certificate is shown.
  static std::unique_ptr<Transport> connect(const ClusterAccess& access, const Identity& identity,
                                            const Budget& budget);
  // A connected socket, non-blocking.
  static std::unique_ptr<Transport> adopt(Fd socket);

  [[nodiscard]] virtual int fd() const = 0;
  // As read(2) and write(2): -1 with errno (EAGAIN: poll first), 0 at the end. No SIGPIPE.
  virtual ssize_t read_some(char* to, size_t size) = 0;
  virtual ssize_t write_some(const char* from, size_t size) = 0;
  [[nodiscard]] virtual bool has_buffered() const { return false; }
  virtual void shutdown() = 0;
  // Nothing was asked, yet it ended or says something: not to be used again.
  [[nodiscard]] virtual bool stale() = 0;
};

// A socket to host:port whose peer, once gone, is noticed within half a minute; non-blocking.
Fd connect_tcp(const std::string& host, uint16_t port, const Budget& budget);

// The addresses of a name, as numbers; of an address itself. Throws ApiError.
std::vector<std::string> addresses_of(const std::string& host, const Budget& budget);

}  // namespace isogate::k8s
