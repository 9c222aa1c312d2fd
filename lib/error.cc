#include "lib/error.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "isogate/backend.hpp"

namespace isogate {

Error os_error(std::string attempt, int os_errno) {
  attempt += ": ";
  attempt += std::generic_category().message(os_errno);
  return {sdk::status_of(os_errno), os_errno, std::move(attempt)};
}

Error invalid(std::string message) { return {ISOGATE_INVALID_ARGUMENT, 0, std::move(message)}; }

Error unknown_bits(const std::string& what, uint64_t bits) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), bits, 16).ptr;
  return invalid(what + " 0x" + std::string(digits.begin(), end) +
                 ": the gateway is probably newer than this backend's plugin or runner");
}

Error mistaken_path(Error error) {
  if (error.os_errno == ENOENT || error.os_errno == ENOTDIR || error.os_errno == EACCES ||
      error.os_errno == ELOOP)
    error.status = ISOGATE_INVALID_ARGUMENT;
  return error;
}

Error unsupported(std::string message) { return {ISOGATE_UNSUPPORTED, 0, std::move(message)}; }

Error denied(std::string message) { return {ISOGATE_PERMISSION_DENIED, 0, std::move(message)}; }

}  // namespace isogate
