// Cleans text from a plugin for a log line, a record and a person: valid UTF-8 in one line, at most
// `limit` bytes. Everything else becomes U+FFFD or a space. Any thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace isogate {

std::string clean_text(std::string_view text, size_t limit);

// Of a field of a plugin's struct, whose NUL may be missing.
template <size_t Size>
std::string clean_text(const char (&field)[Size]) {
  return clean_text({field, ::strnlen(field, Size)}, Size - 1);
}

}  // namespace isogate
