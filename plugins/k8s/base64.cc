#include "plugins/k8s/base64.h"

#include <cstdint>

namespace isogate::k8s {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : kDigits[group >> (18 - 6 * i) & 63];
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  uint32_t group = 0;
  size_t digits = 0, padding = 0;
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    const size_t digit = kDigits.find(c);
    if (c == '=') {
      ++padding;
    } else if (digit == std::string_view::npos || padding > 0) {
      return std::nullopt;
    }
    group = group << 6 | (c == '=' ? 0u : static_cast<uint32_t>(digit));
    if (++digits % 4 != 0) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(group >> shift & 255);
  }
  if (digits % 4 != 0 || padding > 2) return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace isogate::k8s
