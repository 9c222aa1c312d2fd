#include "gateway/front/api/byte_range.h"

#include <algorithm>

#include "lib/text.h"

namespace isogate::front {

std::optional<ByteRange> parse_range(std::string_view header, uint64_t size) {
  const ByteRange whole{0, size, false};
  if (!header.starts_with("bytes=")) return whole;
  header.remove_prefix(6);
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos || header.find(',') != std::string_view::npos) return whole;
  const auto first = number_in<uint64_t>(header.substr(0, dash));
  const auto last = number_in<uint64_t>(header.substr(dash + 1));
  if (dash > 0 && !first) return whole;
  if (dash + 1 < header.size() && !last) return whole;
  if (!first && !last) return whole;
  if (!first) {
    const uint64_t length = std::min(*last, size);
    if (length == 0) return std::nullopt;
    return ByteRange{size - length, length, true};
  }
  if (last && *last < *first) return whole;
  if (*first >= size) return std::nullopt;
  const uint64_t end = last ? std::min(*last, size - 1) : size - 1;
  return ByteRange{*first, end - *first + 1, true};
}

}  // namespace isogate::front
