// Writes of a call's own thread to a descriptor of the caller. The descriptor is borrowed and may be shared
// with other processes: its flags stay unchanged, and it never gets more than it takes without blocking.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <string>

namespace isogate::sdk::link {

// While it lives, a write of this thread to a pipe without reader fails instead of killing the process.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t old_{};
  bool was_pending_;
};

class Outlet {
 public:
  explicit Outlet(int fd = -1) : fd_(fd) {}

  // Takes the bytes, and returns an empty string to collect more in. Only when empty().
  void take(std::string& bytes);
  // Writes what the descriptor accepts now. Once its reader is gone, all bytes are discarded.
  void push();
  // From now on all bytes are discarded.
  void close();
  [[nodiscard]] bool empty() const { return at_ == bytes_.size(); }
  [[nodiscard]] bool is_broken() const { return broken_; }
  // Poll it for POLLOUT; -1: nothing to write.
  [[nodiscard]] int wants() const { return empty() ? -1 : fd_; }
  // Bytes written or discarded so far; bytes ever taken.
  [[nodiscard]] uint64_t passed() const { return passed_; }
  [[nodiscard]] uint64_t came() const { return passed_ + bytes_.size() - at_; }

 private:
  bool push_piece();
  ssize_t write_now();
  void advance(size_t size);

  int fd_;
  bool broken_ = false;
  bool all_at_once_ = true;  // until it turns out that it cannot be
  std::string bytes_;
  size_t at_ = 0;
  uint64_t passed_ = 0;
};

}  // namespace isogate::sdk::link
