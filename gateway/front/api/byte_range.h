// The Range header (RFC 9110, section 14), one range. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace isogate::front {

struct ByteRange {
  uint64_t offset = 0, length = 0;
  bool partial = false;
};

// The whole file for an absent, malformed or multiple range, as the RFC allows; nullopt when the range
// lies outside the file (416).
std::optional<ByteRange> parse_range(std::string_view header, uint64_t size);

}  // namespace isogate::front
