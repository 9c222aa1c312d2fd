#include "lib/loopback.h"

#include <arpa/inet.h>

#include <cstring>

namespace isogate {

std::string address_bytes(std::string_view address) {
  if (address.size() >= INET6_ADDRSTRLEN || address.find('\0') != std::string_view::npos) return {};
  const std::string text(address);
  char bytes[16];
  if (::inet_pton(AF_INET, text.c_str(), bytes) == 1) return {bytes, 4};
  if (::inet_pton(AF_INET6, text.c_str(), bytes) != 1) return {};
  static constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (std::memcmp(bytes, kMapped, 12) == 0) return {bytes + 12, 4};
  return {bytes, 16};
}

bool is_loopback(std::string_view address) {
  const std::string bytes = address_bytes(address);
  if (bytes.size() == 4) return bytes[0] == 127;
  return bytes == std::string(15, '\0') + '\1';
}

}  // namespace isogate
