#include "plugins/docker/random_hex.h"

#include <sys/random.h>

#include <array>
#include <cerrno>

#include "isogate/backend.hpp"

namespace isogate::docker {

std::string random_hex(size_t bytes) {
  std::array<unsigned char, 32> drawn{};
  if (bytes > drawn.size()) throw sdk::Error(ISOGATE_INTERNAL, "so many random bytes are not drawn at once");
  if (::getrandom(drawn.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    sdk::fail_with_errno("cannot draw a random name", errno);
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    text += "0123456789abcdef"[drawn[i] >> 4];
    text += "0123456789abcdef"[drawn[i] & 15];
  }
  return text;
}

}  // namespace isogate::docker
