// One connection to an Engine, plain or TLS, non-blocking. One thread may read while another one writes;
// shutdown() is for any thread.
#pragma once

#include <sys/types.h>

#include <memory>

#include "plugins/docker/engine_address.h"
#include "plugins/docker/engine_budget.h"
#include "runner/fd.h"

namespace isogate::docker {

class Transport {
 public:
  virtual ~Transport() = default;
  // Throws EngineError: ISOGATE_UNAVAILABLE, or ISOGATE_CANCELLED.
  static std::unique_ptr<Transport> connect(const EngineAddress& address, const Budget& budget);
  // A connected socket, non-blocking.
  static std::unique_ptr<Transport> adopt(Fd socket);

  [[nodiscard]] virtual int fd() const = 0;
  // As read(2) and write(2): -1 with errno (EAGAIN: poll first), 0 at the end. No SIGPIPE.
  virtual ssize_t read_some(char* to, size_t size) = 0;
  virtual ssize_t write_some(const char* from, size_t size) = 0;
  [[nodiscard]] virtual bool has_buffered() const { return false; }
  virtual void end_output() = 0;  // the other side reads the end; reading goes on
  virtual void shutdown() = 0;
  // Nothing was asked, yet it ended or says something: not to be used again.
  [[nodiscard]] virtual bool stale() = 0;
};

}  // namespace isogate::docker
