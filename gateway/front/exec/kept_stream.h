// The kept part of one output stream of a long-lived exec, found by the offset from its beginning: the
// last bytes in memory, and together with older ones in a file, as far as the disk's quotas allow. The
// front's one thread; one coroutine appends, any number read.
#pragma once

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "gateway/front/base/byte_budget.h"
#include "gateway/front/base/killer.h"
#include "gateway/front/exec/spool_disk.h"
#include "lib/spool.h"

namespace isogate::front {

class KeptStream {
 public:
  static constexpr size_t kAtATime = 64 * 1024;  // to and from the disk, in memory beside `most`

  // Bytes that a reader has read from the disk.
  struct Piece {
    std::string bytes;
    uint64_t from = 0;
  };

  // At most `most` bytes in memory, and `in_all` together with the file; with none in memory it only
  // counts, and there is no file. `disk` outlives it.
  KeptStream(SpoolDisk& disk, std::string tenant, size_t most, uint64_t in_all);
  KeptStream(const KeptStream&) = delete;
  KeptStream& operator=(const KeptStream&) = delete;
  ~KeptStream();

  [[nodiscard]] uint64_t first() const { return file_ ? std::min(first_, memory_.first()) : memory_.first(); }
  [[nodiscard]] uint64_t next() const { return memory_.next(); }
  // The last bytes, those in memory.
  [[nodiscard]] const Spool& end() const { return memory_; }
  [[nodiscard]] uint64_t on_disk() const { return share_.bytes(); }
  [[nodiscard]] uint64_t files() const { return place_.bytes(); }
  // How many bytes fit before one at or behind `offset` is dropped.
  [[nodiscard]] size_t room(uint64_t offset) const;

  // Whether append() of that many bytes waits for the disk.
  [[nodiscard]] bool waits(size_t bytes) const { return uses_disk_ && is_beyond(bytes); }
  // Drops the oldest bytes to make room, no more than room() reports when it begins. `data` stays valid until
  // it returns. False: the disk failed meanwhile and nothing was appended; room() reports what fits now.
  boost::asio::awaitable<bool> append(std::string_view data);
  // append() does not wait for the disk any more, nor does one that waits: as if the disk had failed.
  void leave_disk() { leaves_.kill(); }

  // Bytes from `offset` on, perhaps not all: in memory, valid until the next change, or in `piece`, of
  // this stream. Empty: it is the end, or that offset was dropped meanwhile (first()).
  boost::asio::awaitable<std::string_view> read(uint64_t offset, Piece& piece);

  // Drops all bytes, and continues at a later offset.
  void skip_to(uint64_t offset);
  // An append() of that many bytes drops nothing, whatever room() reports; and back to `most` bytes in
  // memory, unless the file has the bytes before them.
  void widen(size_t bytes) { memory_.widen(bytes); }
  void narrow(size_t most);

 private:
  [[nodiscard]] bool is_beyond(size_t bytes) const;
  uint64_t claim(uint64_t bytes);
  void release();
  void append_to_memory(std::string_view data);
  [[nodiscard]] std::string unwritten(std::string_view coming) const;
  boost::asio::awaitable<bool> on_disk_thread(Killer& killer, std::function<void()> work);
  void drop_file();

  SpoolDisk& disk_;
  const std::string tenant_;
  Spool memory_;
  const uint64_t in_all_;
  bool uses_disk_;                    // until it fails: bytes on it can then still be read
  ByteShare share_;                   // of the disk
  ByteShare place_;                   // of a file: 1 while there is one
  std::shared_ptr<SpoolFile> file_;   // null: nothing is in it
  uint64_t first_ = 0, written_ = 0;  // offsets of what is in it; the memory begins no later than it ends
  Killer leaves_;                     // of append()
  uint64_t asks_again_ = 0;           // the offset at which quotas that are exhausted are asked again
};

}  // namespace isogate::front
