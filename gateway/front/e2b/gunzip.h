// A body with `Content-Encoding: gzip`, unpacked as it arrives (zlib). One thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace isogate::front::e2b {

// Further bytes of a body, at least one; 0 at its end.
using ReadBody = std::function<boost::asio::awaitable<size_t>(char* data, size_t size)>;

class Gunzip {
 public:
  explicit Gunzip(ReadBody packed);
  ~Gunzip();
  // The same, of what was packed; others have their turn after each MiB of it. Throws ApiError
  // invalid_request: it is no gzip, or ends in the middle.
  boost::asio::awaitable<size_t> read(char* data, size_t size);

 private:
  struct Stream;
  ReadBody packed_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace isogate::front::e2b
