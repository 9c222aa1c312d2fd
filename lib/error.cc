#include "lib/error.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

namespace isogate {
namespace {

isogate_status status_of(int os_errno) {
  switch (os_errno) {
    case ENOENT:
    case ENOTDIR:
      return ISOGATE_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
      return ISOGATE_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EXDEV:
    case ELOOP:
    case EROFS:
      return ISOGATE_PERMISSION_DENIED;
    case EISDIR:
      return ISOGATE_IS_DIRECTORY;
    case ENXIO:
      return ISOGATE_NOT_REGULAR;
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
      return ISOGATE_INVALID_ARGUMENT;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
      return ISOGATE_RESOURCE_EXHAUSTED;
    case ENOSYS:
    case EOPNOTSUPP:
      return ISOGATE_UNSUPPORTED;
    default:
      return ISOGATE_IO;
  }
}

}  // namespace

Error os_error(std::string attempt, int os_errno) {
  attempt += ": ";
  attempt += std::generic_category().message(os_errno);
  return {status_of(os_errno), os_errno, std::move(attempt)};
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
