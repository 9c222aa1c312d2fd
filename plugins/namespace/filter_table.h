// What a sandboxed program may ask of the kernel. One row a family, with its reason; what no row names is
// refused with EPERM, a number beyond all rows with ENOSYS, so that a libc newer than this table falls back.
#pragma once

#include <cstdint>
#include <span>

namespace isogate::ns {

enum class Verdict : uint8_t {
  kRefuse,  // EPERM
  kAbsent,  // ENOSYS: libraries then do without
  kAllow,
  kPretend,      // 0, and nothing is done
  kClone,        // no new namespaces
  kSocket,       // Unix; TCP, UDP and ICMP over IPv4 and IPv6; netlink to read routes and addresses
  kSocketPair,   // Unix
  kFcntl,        // all but the size of pipes
  kIoctl,        // nothing that types into a terminal or changes its line discipline
  kPersonality,  // only the ordinary one, and asking which
  kSeccomp,      // no listener that decides for others
  kMakeNode2,
  kMakeNode3,  // the mode is argument 1 or 2: no devices
  kDebugOnly,  // allowed in profile debug, else refused
};

struct FilterRow {
  Verdict verdict;
  const char* reason;
  std::span<const int> numbers;
};

std::span<const FilterRow> filter_table();

}  // namespace isogate::ns
