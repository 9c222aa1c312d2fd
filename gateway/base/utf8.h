// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace isogate {

struct CodePoint {
  uint32_t value = 0;
  size_t size = 0;  // bytes it takes; 0: the text is empty or does not begin with a whole code point
};
CodePoint first_code_point(std::string_view text);

bool is_utf8(std::string_view text);

// At most `limit` bytes from the beginning, cut between code points.
std::string_view utf8_prefix(std::string_view text, size_t limit);

}  // namespace isogate
