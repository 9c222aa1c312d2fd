// Raw code: see raw_syscall.h. The records of an exec's control pipe (isogate_control), in whatever pieces
// they are read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isogate/backend.h"

namespace isogate {

struct ControlRecords {
  alignas(isogate_control) char bytes[sizeof(isogate_control) * 16];
  uint32_t length = 0;  // between two reads, less than that of one record
};

// Where the next bytes are read to: never full.
static inline char* raw_control_room(ControlRecords& records, size_t& size) {
  size = sizeof records.bytes - records.length;
  return records.bytes + records.length;
}

// `size` bytes were read there: calls `obey` for each record that is whole now, in order.
template <typename Obey>
static inline void raw_control_read(ControlRecords& records, size_t size, Obey obey) {
  records.length += static_cast<uint32_t>(size);
  uint32_t at = 0;
  for (; records.length - at >= sizeof(isogate_control); at += sizeof(isogate_control))
    obey(*reinterpret_cast<const isogate_control*>(records.bytes + at));
  for (uint32_t i = at; i < records.length; ++i) records.bytes[i - at] = records.bytes[i];
  records.length -= at;
}

}  // namespace isogate
