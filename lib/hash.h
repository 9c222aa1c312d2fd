// Hashes, randomness and their spellings. Any thread. Bytes travel in std::string.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace isogate {

std::string sha256(std::string_view bytes);      // 32 raw bytes (FIPS 180-4)
std::string sha256_hex(std::string_view bytes);  // 64 lower-case digits

// SHA-256 of bytes that come in parts. A copy continues from the same beginning.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256& other);
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256 other) noexcept;
  ~Sha256();
  void add(std::string_view bytes);
  std::string digest() &&;  // 32 raw bytes; once

 private:
  evp_md_ctx_st* context_;
};

// Its time depends only on the lengths, never on the bytes.
bool equal_constant_time(std::string_view a, std::string_view b);

// From the kernel's generator. Aborts if there is no randomness, because the process must not
// continue.
std::string random_bytes(size_t count);
std::string random_hex(size_t bytes);  // 2 digits each

std::string hex(std::string_view bytes);           // lower case
std::string base32_lower(std::string_view bytes);  // RFC 4648 alphabet in lower case, a-z2-7, no padding

}  // namespace isogate
