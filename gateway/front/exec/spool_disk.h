// Where older output of long-lived execs is kept: a file without a name for each stream, all within a quota.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "gateway/front/base/byte_budget.h"
#include "gateway/front/base/elsewhere.h"
#include "lib/error.h"
#include "lib/fd.h"

namespace isogate::front {

// Bytes of a stream by their offset from its beginning; they go with it. One thread at a time, which waits
// for the disk.
class SpoolFile {
 public:
  static constexpr uint64_t kLeftFree = 64 << 20;  // bytes, for the journal, which is on the same disk

  // Makes the file; the first write says where it begins. Refused, as where the disk is full, if that would
  // leave less than kLeftFree of it.
  Result<void> write(int directory, uint64_t offset, std::string_view bytes);
  // Gives the disk of what is before it back, in steps.
  Result<void> drop_before(uint64_t offset);
  // An error unless all of them are there.
  [[nodiscard]] Result<std::string> read(uint64_t offset, size_t bytes) const;

 private:
  Fd file_;
  uint64_t base_ = 0;     // the offset of the file's first byte
  uint64_t dropped_ = 0;  // of the file's bytes
};

// Of the front's one thread.
struct SpoolDisk {
  explicit SpoolDisk(boost::asio::any_io_executor executor) : thread(std::move(executor)) {}

  Fd directory;  // none: nothing is kept on disk
  ByteBudget quota;
  Elsewhere thread;  // for what waits for the disk
};

}  // namespace isogate::front
