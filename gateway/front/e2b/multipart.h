// multipart/form-data (RFC 7578), read as it arrives: memory is bounded for any body. One thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/e2b/gunzip.h"

namespace isogate::front::e2b {

// Of a Content-Type; nullopt: it is no multipart/form-data with a boundary of 1 to 70 characters.
std::optional<std::string> boundary_of(std::string_view content_type);

class Multipart {
 public:
  static constexpr size_t kMostSkipped = 1 << 20;

  struct Part {
    std::string name;
    std::optional<std::string> filename;
  };

  Multipart(const std::string& boundary, ReadBody read);

  // The next part; the rest of the previous one is skipped. nullopt: there are no more, and the body is at
  // its end. Throws ApiError invalid_request: the body is not multipart, is cut short, or has over
  // kMostSkipped bytes in all that are skipped.
  boost::asio::awaitable<std::optional<Part>> next();
  // Further bytes of the part, valid until the next call; empty at its end. Throws the same.
  boost::asio::awaitable<std::string_view> read();

 private:
  static constexpr size_t kRead = 65536, kMostHead = 8192, kMostParts = 10000;

  boost::asio::awaitable<bool> more();
  void skip(size_t bytes);
  boost::asio::awaitable<std::string> take_line();

  const std::string delimiter_;  // in front of the boundary, too
  const ReadBody read_;
  std::string piece_, kept_;
  size_t taken_ = 0;  // of `kept_`, by the caller
  size_t parts_ = 0, skipped_ = 0;
  bool in_part_ = false, over_ = false;
};

}  // namespace isogate::front::e2b
