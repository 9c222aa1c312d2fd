// A scripted server's side of a connection.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>

#include "lib/net/transport.h"

namespace isogate::test {

// Accepts what is sent, `takes` times; returns `bytes`, at most `piece` of them at a time, then the end.
class Scripted final : public net::Transport {
 public:
  // `left`, unless null: how many bytes were not read.
  Scripted(std::string_view bytes, size_t piece, size_t* left = nullptr, int takes = INT_MAX)
      : bytes_(bytes), piece_(piece), left_(left), takes_(takes) {}
  [[nodiscard]] int fd() const override {
    static const int ready = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    return ready;
  }
  ssize_t read_some(char* to, size_t size) override {
    const size_t count = std::min({bytes_.size(), size, piece_});
    std::memcpy(to, bytes_.data(), count);
    bytes_.remove_prefix(count);
    if (left_ != nullptr) *left_ = bytes_.size();
    return static_cast<ssize_t>(count);
  }
  ssize_t write_some(const char*, size_t size) override {
    if (takes_-- > 0) return static_cast<ssize_t>(size);
    errno = EPIPE;
    return -1;
  }
  void shutdown() override {}
  [[nodiscard]] bool stale() override { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  const size_t piece_;
  size_t* const left_;
  int takes_;
};

}  // namespace isogate::test
