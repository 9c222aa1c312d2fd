// A body in pieces whose sizes the input decides, and what else the targets of this listener share.
#pragma once

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <exception>
#include <string_view>

#include "gateway/front/e2b/gunzip.h"
#include "tests/fuzz/require.h"

// Without `sizes` as many bytes as were asked for, otherwise that many in turn: up to 192, or 1 to 64 KiB;
// more of a large body, so that a run stays short.
class Pieces {
 public:
  Pieces(std::string_view bytes, std::string_view sizes)
      : left_(bytes), sizes_(sizes), scale_(1 + bytes.size() / 4096) {}
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  isogate::front::e2b::ReadBody reader() {
    return [this](char* data, size_t size) -> boost::asio::awaitable<size_t> { co_return take(data, size); };
  }
  [[nodiscard]] size_t most_asked() const { return most_asked_; }
  [[nodiscard]] bool at_end() const { return over_; }

 private:
  size_t take(char* data, size_t size) {
    require(size > 0 && !over_);
    most_asked_ = std::max(most_asked_, size);
    const size_t n = std::min({left_.size(), size, next_size()});
    std::copy_n(left_.data(), n, data);
    left_.remove_prefix(n);
    over_ = n == 0;
    return n;
  }
  size_t next_size() {
    if (sizes_.empty()) return SIZE_MAX;
    const size_t size = static_cast<unsigned char>(sizes_[turn_++ % sizes_.size()]);
    return scale_ * (size < 192 ? size + 1 : (size - 191) * 1024);
  }

  std::string_view left_, sizes_;
  size_t scale_, turn_ = 0, most_asked_ = 0;
  bool over_ = false;
};

inline std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

// Rethrows its exception.
inline void run(boost::asio::awaitable<void> work) {
  static boost::asio::io_context io(1);
  std::exception_ptr failure;
  boost::asio::co_spawn(io, std::move(work), [&](const std::exception_ptr& thrown) { failure = thrown; });
  io.restart();
  io.run();
  if (failure) std::rethrow_exception(failure);
}
