// The Unix socket over which the runner of one container connects to this host: in a directory that is
// read-only in the container. The host listens, the runner connects. The kernel identifies the peer:
// only the container's own init is accepted, and once; no program of the tenant is.
#pragma once

#include <chrono>
#include <string>

#include "isogate/backend.hpp"
#include "lib/fd.h"

namespace isogate::docker {

class Gate {
 public:
  // Listens in `directory` (O_PATH, borrowed until the destructor), and replaces an earlier one. Throws
  // sdk::Error.
  explicit Gate(int directory);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();  // stops listening, removes its socket; one that replaced it stays

  // The connection of the process `pid` (as this host sees it), close-on-exec. An empty one when it did not
  // come within `patience`. Throws ISOGATE_CANCELLED.
  Fd accept(int pid, std::chrono::milliseconds patience, const sdk::Call& call);

  // How many others connected.
  [[nodiscard]] unsigned strangers() const { return strangers_; }

 private:
  Fd accept_one(int pid);
  int directory_;
  uint64_t inode_ = 0;
  Fd listener_;
  unsigned strangers_ = 0;
};

}  // namespace isogate::docker
