#include "lib/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

namespace isogate {

bool is_loopback(std::string_view address) {
  if (address.find('\0') != std::string_view::npos) return false;
  const std::string text(address);
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr six{};
  if (::inet_pton(AF_INET6, text.c_str(), &six) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == IN_LOOPBACKNET);
}

}  // namespace isogate
