#include "gateway/base/utf8.h"

namespace isogate {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u; }

}  // namespace

CodePoint first_code_point(std::string_view text) {
  if (text.empty()) return {};
  auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return {};
  uint32_t value = lead & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if (!continues(text[i])) return {};
    value = (value << 6) | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  }
  bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {};
  return {value, size};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    size_t size = first_code_point(text).size;
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string_view utf8_prefix(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && continues(text[limit])) --limit;
  return text.substr(0, limit);
}

}  // namespace isogate
