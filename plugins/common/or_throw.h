// From the runner library's results to the SDK's exceptions.
#pragma once

#include <utility>

#include "isogate/backend.hpp"
#include "lib/error.h"

namespace isogate {

template <typename T>
T or_throw(Result<T> result) {
  if (!result) throw sdk::Error(result.error().status, result.error().message, result.error().os_errno);
  return std::move(*result);
}

inline void or_throw(Result<void> result) {
  if (!result) throw sdk::Error(result.error().status, result.error().message, result.error().os_errno);
}

}  // namespace isogate
