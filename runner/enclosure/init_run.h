// Raw code: see raw_syscall.h. The body of an order to run (InitRun, init_protocol.h), parsed by the init.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runner/enclosure/init_protocol.h"

namespace isogate {

struct InitStrings {
  InitRun head;
  uint64_t pointers;  // how many the next four need together
  char* cwd;
  char* search;         // null: argv[0] is a path
  char **argv, **envp;  // each with a null at its end
};

// Looks at the head. False: that is no such body.
static inline bool raw_begin_run(const char* body, size_t size, InitStrings& strings) {
  if (size < sizeof(InitRun)) return false;
  __builtin_memcpy(&strings.head, body, sizeof strings.head);
  strings.pointers = uint64_t{strings.head.arguments} + strings.head.variables + 6;
  return strings.pointers <= kInitMostBytes;
}

// The pointers of `count` strings from `at` on, and a null at their end; moves both behind them. Null: they
// do not all end within the body.
static inline char** raw_point_to(char*& at, const char* end, char**& pointers, uint32_t count) {
  char** const first = pointers;
  for (uint32_t i = 0; i < count; ++i) {
    *pointers++ = at;
    while (at < end && *at != '\0') ++at;
    if (at >= end) return nullptr;
    ++at;
  }
  *pointers++ = nullptr;
  return first;
}

// The rest of a body for which raw_begin_run() was true; `pointers` has room for as many as that counted.
static inline bool raw_lay_out_run(char* body, size_t size, char** pointers, InitStrings& strings) {
  const InitRun& head = strings.head;
  const char* const end = body + size;
  char* at = body + sizeof(InitRun);
  char** const cwd = raw_point_to(at, end, pointers, 1);
  if (cwd == nullptr) return false;
  strings.cwd = *cwd;
  strings.search = nullptr;
  if (head.searched != 0) {
    char** const search = raw_point_to(at, end, pointers, 1);
    if (search == nullptr) return false;
    strings.search = *search;
  }
  strings.argv = raw_point_to(at, end, pointers, head.arguments);
  strings.envp = strings.argv == nullptr ? nullptr : raw_point_to(at, end, pointers, head.variables);
  return strings.envp != nullptr;
}

}  // namespace isogate
