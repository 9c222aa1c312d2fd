// Waiting for another gateway before serving (wait_for_sidecar).
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <string>

#include "lib/error.h"

namespace isogate::front {

// Asks http://ADDRESS/healthz twice a second until it answers 200; an error after `limit`.
boost::asio::awaitable<Result<void>> wait_for_sidecar(boost::asio::any_io_executor executor,
                                                      std::string address, std::chrono::seconds limit);

}  // namespace isogate::front
