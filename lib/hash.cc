#include "lib/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace isogate {
namespace {

// Fetched once: OpenSSL looks EVP_sha256() up in its providers at each use.
const EVP_MD* algorithm() {
  static const EVP_MD* const found = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return found;
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::string digest(32, '\0');
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr,
                 algorithm(), nullptr) != 1)
    std::abort();
  return digest;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex2(context_, algorithm(), nullptr) != 1) std::abort();
}
Sha256::Sha256(const Sha256& other) : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_MD_CTX_copy_ex(context_, other.context_) != 1) std::abort();
}
Sha256::Sha256(Sha256&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
Sha256& Sha256::operator=(Sha256 other) noexcept {
  std::swap(context_, other.context_);
  return *this;
}
Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::add(std::string_view bytes) {
  if (EVP_DigestUpdate(context_, bytes.data(), bytes.size()) != 1) std::abort();
}

std::string Sha256::digest() && {
  std::string digest(32, '\0');
  if (EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(digest.data()), nullptr) != 1)
    std::abort();
  return digest;
}

std::string sha256_hex(std::string_view bytes) { return hex(sha256(bytes)); }

bool equal_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t have = 0; have < count;) {
    ssize_t got = ::getrandom(bytes.data() + have, count - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) std::abort();
    have += static_cast<size_t>(got);
  }
  return bytes;
}

std::string random_hex(size_t bytes) { return hex(random_bytes(bytes)); }

std::string hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string base32_lower(std::string_view bytes) {
  static constexpr char kDigits[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::string text;
  uint32_t window = 0;
  int bits = 0;
  for (unsigned char byte : bytes) {
    window = (window << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) text += kDigits[(window >> (bits - 5)) & 31];
  }
  if (bits > 0) text += kDigits[(window << (5 - bits)) & 31];
  return text;
}

}  // namespace isogate
