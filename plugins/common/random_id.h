// Ids of sandboxes that are created in advance.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>

#include "isogate/backend.hpp"

namespace isogate {

// An unused sandbox id: "isg-" and 130 random bits in base32. Throws sdk::Error.
inline std::string random_sandbox_id() {
  unsigned char bytes[26];
  if (::getentropy(bytes, sizeof bytes) != 0) sdk::fail_with_errno("cannot draw a random name", errno);
  std::string id = "isg-";
  for (const unsigned char byte : bytes) id += "abcdefghijklmnopqrstuvwxyz234567"[byte & 31];
  return id;
}

}  // namespace isogate
