// Where older output of long-lived execs is kept: a file without a name for each stream, all within a quota
// of bytes, and of files, as each is a descriptor.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gateway/front/base/byte_budget.h"
#include "gateway/front/base/elsewhere.h"
#include "lib/error.h"
#include "lib/fd.h"

namespace isogate::front {

// The last bytes of a stream, by their offset from its beginning: a ring, lost with this object. One
// thread at a time, which waits for the disk.
class SpoolFile {
 public:
  static constexpr uint64_t kLeftFree = 64 << 20;  // bytes, for the journal, which is on the same disk
  static constexpr uint64_t kDropStep = 64 << 10;

  // A byte is overwritten by the byte `bytes`, or up to kDropStep more, behind it.
  explicit SpoolFile(uint64_t bytes) : size_((bytes + kDropStep - 1) / kDropStep * kDropStep) {}
  // Creates the file; the first write decides its first offset, later writes continue there. Fails as on a
  // full disk if less than kLeftFree would remain.
  Result<void> write(int directory, uint64_t offset, std::string_view bytes);
  // Frees the disk space of bytes before it, once that is more than `at_least` and a step.
  Result<void> drop_before(uint64_t offset, uint64_t at_least);
  // An error unless all of the bytes exist, or existed.
  [[nodiscard]] Result<std::string> read(uint64_t offset, size_t bytes) const;

 private:
  [[nodiscard]] uint64_t place_of(uint64_t offset) const { return (offset - base_) % size_; }

  const uint64_t size_;
  Fd file_;
  uint64_t base_ = 0;               // the offset of the byte that was written first
  uint64_t dropped_ = 0, end_ = 0;  // offsets: of what takes disk
};

// Of the front's one thread.
struct SpoolDisk {
  explicit SpoolDisk(boost::asio::any_io_executor executor) : thread(std::move(executor)) {}

  // Of the file system with the state database; none: not known.
  [[nodiscard]] std::optional<uint64_t> free_bytes() const;

  Fd directory;  // none: nothing is kept on disk
  ByteBudget quota;
  ByteBudget files;  // how many there are, in place of bytes
  Elsewhere thread;  // for what waits for the disk
};

}  // namespace isogate::front
