// The Unix socket through which the runner of one container comes to this host: in a directory that the
// container sees read-only. The host listens, the runner dials in. Whoever else does, a program of the
// tenant, say, is told apart by the kernel: only the container's own init may come in, and once.
#pragma once

#include <chrono>
#include <string>

#include "isogate/backend.hpp"
#include "lib/fd.h"

namespace isogate::docker {

class Gate {
 public:
  // Listens in `directory` (O_PATH, borrowed until the destructor), in the place of an earlier one. Throws
  // sdk::Error.
  explicit Gate(int directory);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();  // stops listening, removes its socket; one that took its place stays

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
