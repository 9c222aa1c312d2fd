#include "plugins/k8s/digest.h"

#include <openssl/evp.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

#include "isogate/backend.hpp"

namespace isogate::k8s {
namespace {

std::string hex_of(const unsigned char* bytes, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

bool is_label_value(const std::string& text) {
  const auto alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  if (text.empty() || text.size() > 63 || !alnum(text.front()) || !alnum(text.back())) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return alnum(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

std::string random_hex(size_t bytes) {
  std::array<unsigned char, 32> drawn{};
  if (bytes > drawn.size()) throw sdk::Error(ISOGATE_INTERNAL, "so many random bytes are not drawn at once");
  if (::getrandom(drawn.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    sdk::fail_with_errno("cannot draw a random name", errno);
  return hex_of(drawn.data(), bytes);
}

std::string sha256_hex(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    throw sdk::Error(ISOGATE_INTERNAL, "cannot make a digest");
  return hex_of(digest.data(), size);
}

std::string label_value(const std::string& text) {
  return is_label_value(text) ? text : "x-" + sha256_hex(text).substr(0, 32);
}

}  // namespace isogate::k8s
