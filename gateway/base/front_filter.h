// The system calls that the front never makes but an intruder in it would, as one table, and the code
// that turns such a table into a seccomp filter.
//
// What is not in the table is allowed: the front's needs are the C library's, Boost's, OpenSSL's and
// SQLite's, and a list of those would break with each of their updates. System calls of a foreign
// architecture (32 bit, x32) kill the process. Pure data; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "lib/error.h"

namespace isogate {

enum class FilterAction : uint8_t {
  kKill,      // no library probes for this: a process that calls it is an intruder, and is reported
  kRefuse,    // EPERM: libraries probe for it and continue without it
  kAbsent,    // ENOSYS: the C library then takes the older call, whose arguments a filter can read
  kNoFamily,  // EAFNOSUPPORT
};

enum class FilterWhen : uint8_t {
  kAlways,
  kFirstHas,      // all bits of `value` are set in the first argument
  kFirstLacks,    // none of them is
  kFirstAtLeast,  // the first argument is `value` or more
  kFirstIs,
};

struct FilterRule {
  const char* system_call;
  FilterAction action;
  const char* reason;
  FilterWhen when = FilterWhen::kAlways;
  uint64_t value = 0;
  int number = -1;  // of a call that libseccomp has no name for yet
};

std::span<const FilterRule> front_filter_rules();  // sorted by system_call

// The handler of SIGSYS when a kKill rule of a filter with a report matches. The filter keeps the handler
// in place: a call that changes it is killed, too.
enum class OnKill : uint8_t { kDie, kReportAndDie };

// Loads the rules as one filter for every thread of the process, and checks that it is in force.
// Sets no_new_privs. [any]
Result<void> install_filter(std::span<const FilterRule> rules, OnKill on_kill = OnKill::kDie);

}  // namespace isogate
