// A header of a tar archive as it lies in its block (POSIX.1-2001, pax, "ustar Interchange Format").
#pragma once

#include <cstddef>

namespace isogate {

inline constexpr size_t kTarBlock = 512;

struct TarHeader {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, target[100], magic[6],
      version[2], user[32], group[32], major[8], minor[8], prefix[155], unused[12];
};
static_assert(sizeof(TarHeader) == kTarBlock);

}  // namespace isogate
