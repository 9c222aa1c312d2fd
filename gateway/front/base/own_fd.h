// Descriptors for the front's own use, or an ApiError when none are left; and what a pipe holds.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "gateway/front/base/api_error.h"
#include "lib/fd.h"

namespace isogate::front {

inline ApiError no_descriptor(const Error& error) {
  if (error.os_errno != EMFILE && error.os_errno != ENFILE)
    return {.code = Code::kInternal, .message = error.message};
  return {.code = Code::kRateLimited,
          .message =
              "the gateway is out of file descriptors; try again when some calls have ended, or raise "
              "its RLIMIT_NOFILE",
          .retry_after_sec = 1};
}

template <typename T>
T or_throw(Result<T> result) {
  if (!result) throw no_descriptor(result.error());
  return std::move(*result);
}

inline void or_throw(const Result<void>& result) {
  if (!result) throw no_descriptor(result.error());
}

inline Fd duplicate(const Fd& fd) { return or_throw(copy_of(fd.get())); }

// Of a pipe; nullopt: it cannot be asked, or is closed.
inline std::optional<size_t> bytes_in(int pipe) {
  int bytes = 0;
  if (::ioctl(pipe, FIONREAD, &bytes) != 0) return std::nullopt;
  return static_cast<size_t>(bytes);
}

}  // namespace isogate::front
