// What has to hold for every input; where it does not, the line is told and the process ends.
#pragma once

#include <cstdio>
#include <cstdlib>

inline void require(bool holds, int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "line %d does not hold\n", line);
  std::abort();
}
