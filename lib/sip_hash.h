// SipHash-2-4 (Aumasson and Bernstein, 2012): 64 bits that nobody can compute or guess without the key. For
// what must not link OpenSSL; lib/hash.h has the others. Pure, any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace isogate {

struct SipKey {
  uint64_t k0 = 0, k1 = 0;  // the key's 16 bytes, each half little-endian
};

uint64_t sip_hash(const SipKey& key, std::string_view bytes);

}  // namespace isogate
