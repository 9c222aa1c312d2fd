// The boundary to the host: structs of another size, strings without a NUL, exceptions.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "isogate/backend.h"
#include "lib/error.h"

namespace isogate {

inline std::string_view view(const isogate_str& text) { return {text.ptr, text.len}; }
inline isogate_str str(std::string_view text) { return {text.data(), text.size()}; }

// The host's struct in the size that this plugin knows: fields that the host did not write are
// zero.
template <typename T>
T taken(const T* given) {
  T copy{};
  std::memcpy(&copy, given, std::min<size_t>(given->struct_size, sizeof copy));
  return copy;
}

// Fills the host's struct as far as both know it.
template <typename T>
void hand_out(T* out, T value) {
  const size_t room = out->struct_size == 0 ? sizeof value : std::min<size_t>(out->struct_size, sizeof value);
  value.struct_size = static_cast<uint32_t>(room);
  std::memcpy(out, &value, room);
}

template <size_t N>
void set_text(char (&field)[N], std::string_view text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(field, text.data(), length);
  field[length] = '\0';
}

inline isogate_status fail(isogate_error* out, const Error& error) {
  isogate_error report{};
  report.os_errno = error.os_errno;
  set_text(report.message, error.message);
  if (out != nullptr) hand_out(out, report);
  return error.status == ISOGATE_OK ? ISOGATE_INTERNAL : error.status;
}

// Runs `body`, which returns a Result<void>; lets no exception out.
template <typename Body>
isogate_status guarded(isogate_error* out, Body body) noexcept {
  try {
    const Result<void> done = body();
    return done ? ISOGATE_OK : fail(out, done.error());
  } catch (const std::bad_alloc&) {
    return fail(out, {ISOGATE_RESOURCE_EXHAUSTED, 0, "out of memory"});
  } catch (const std::exception& error) {
    return fail(out, {ISOGATE_INTERNAL, 0, error.what()});
  } catch (...) {
    return fail(out, {ISOGATE_INTERNAL, 0, "unknown exception"});
  }
}

}  // namespace isogate
