// The last bytes of one output stream, found by their offset from its beginning. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace isogate {

class Spool {
 public:
  // Keeps `most` bytes; memory is taken as they come.
  explicit Spool(size_t most) : most_(most) {}

  // Drops the oldest bytes beyond `most`.
  void append(std::string_view data);
  // Keeps that many more bytes from now on, and `most` again.
  void widen(size_t bytes) { most_ += bytes; }
  void narrow(size_t most);
  // Drops all bytes, and continues at a later offset.
  void skip_to(uint64_t offset);
  // How many bytes fit before one at or after `offset` is dropped.
  [[nodiscard]] size_t room(uint64_t offset) const;
  // Bytes from `offset` on, in one piece, perhaps not all; empty at the end. Valid until the next
  // append(). The offset is between first() and next().
  [[nodiscard]] std::string_view from(uint64_t offset) const;
  // All of it.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] size_t most() const { return most_; }
  [[nodiscard]] size_t held() const { return ring_.size(); }  // of memory
  [[nodiscard]] uint64_t first() const { return next_ - kept_; }
  [[nodiscard]] uint64_t next() const { return next_; }

 private:
  void grow(size_t needed);

  size_t most_;
  std::string ring_;  // the byte of offset o is at o % size while it does not grow
  size_t kept_ = 0;
  uint64_t next_ = 0;
};

}  // namespace isogate
