// From the runner library's results to the SDK's exceptions.
#pragma once

#include <string>
#include <utility>

#include "isogate/backend.hpp"
#include "lib/error.h"

namespace isogate {

[[noreturn]] inline void fail_with(const Error& error) {
  throw sdk::Error(error.status, error.message, error.os_errno);
}

// Of a file of the backend's own: ISOGATE_IO, because no caller can mend it.
[[noreturn]] inline void fail_with_io(std::string attempt, int os_errno) {
  throw sdk::Error(ISOGATE_IO, os_error(std::move(attempt), os_errno).message, os_errno);
}

// An error of open() or close(), where an errno comes from what is the backend's own: no caller can mend it.
inline Error own_error(Error error) {
  const bool is_errno = error.os_errno != 0 && error.status == sdk::status_of(error.os_errno);
  if (is_errno && error.status != ISOGATE_RESOURCE_EXHAUSTED) error.status = ISOGATE_IO;
  return error;
}

template <typename T>
T or_throw(Result<T> result) {
  if (!result) fail_with(result.error());
  return std::move(*result);
}

inline void or_throw(Result<void> result) {
  if (!result) fail_with(result.error());
}

// Of what is the backend's own, in open() and close().
template <typename T>
T own_or_throw(Result<T> result) {
  if (!result) fail_with(own_error(result.error()));
  return std::move(*result);
}

inline void own_or_throw(Result<void> result) {
  if (!result) fail_with(own_error(result.error()));
}

}  // namespace isogate
