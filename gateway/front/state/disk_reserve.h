// Blocks that the state database and its log have beyond their ends (fallocate(2), KEEP_SIZE), so that
// commits succeed on a full disk: 8 MiB each, which is more than the log grows to, at most an eighth of the
// file system. If that fails, there is no reserve. One thread at a time. Outlives the database's connection:
// closing any descriptor of a file drops the locks that this process has on it (fcntl(2)).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "lib/fd.h"

namespace isogate::front {

class DiskReserve {
 public:
  // For the database at this path and its `-wal`, which exist.
  void open(const std::string& database);
  // Reserves used blocks again, if there is space. Two system calls for each file.
  void top_up();

 private:
  std::array<Fd, 2> files_;
  uint64_t bytes_ = 0;
};

}  // namespace isogate::front
