// A file descriptor that is closed by its owner's destructor.
#pragma once

#include <unistd.h>

namespace isogate::sdk::link {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}  // -1: none
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace isogate::sdk::link
