// A body that arrives in pieces, for a function that reads one.
#pragma once

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <string>

#include "gateway/front/e2b/gunzip.h"

namespace isogate::front::e2b {

// Runs it to its end; rethrows its exception.
inline void run(boost::asio::awaitable<void> work) {
  boost::asio::io_context io;
  std::exception_ptr failure;
  boost::asio::co_spawn(io, std::move(work), [&](const std::exception_ptr& thrown) { failure = thrown; });
  io.run();
  if (failure) std::rethrow_exception(failure);
}

// At most `step` bytes at a time.
inline ReadBody body_of(std::string bytes, size_t step) {
  auto left = std::make_shared<std::string>(std::move(bytes));
  return [left, step](char* data, size_t size) -> boost::asio::awaitable<size_t> {
    const size_t n = std::min({size, step, left->size()});
    std::copy_n(left->data(), n, data);
    left->erase(0, n);
    co_return n;
  };
}

}  // namespace isogate::front::e2b
