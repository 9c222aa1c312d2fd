// The one error type of isogate, and the result that carries it.
//
// An error says what was attempted on which thing and why it failed: "cannot open `a/b`:
// Permission denied". Its status is one of backend.h, so that it crosses the plugin ABI and the
// wire to the front unchanged. Values, no threads, no allocation but the message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "isogate/backend.h"

namespace isogate {

struct [[nodiscard]] Error {
  isogate_status status = ISOGATE_INTERNAL;
  int os_errno = 0;
  std::string message;
};

// Adds ": strerror(os_errno)" and picks the status that fits the errno, sdk::status_of().
Error os_error(std::string attempt, int os_errno);
Error invalid(std::string message);
// `what` of a record has these bits, which this side does not know: "`what` 0x40: the gateway is …".
Error unknown_bits(const std::string& what, uint64_t bits);
// An error about a path that an operator wrote: if it is missing or inaccessible, the argument is wrong.
Error mistaken_path(Error error);
Error unsupported(std::string message);
Error denied(std::string message);  // ISOGATE_PERMISSION_DENIED

// Either a T or an Error. Check ok() before you call error() or operator*.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(*-explicit-*)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(*-explicit-*)
  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  Error& error() { return std::get<1>(state_); }
  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(*-explicit-*)
  [[nodiscard]] bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  Error& error() { return *error_; }
  [[nodiscard]] const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace isogate
