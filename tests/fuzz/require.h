// What must hold for every input; if it does not, the line is printed and the process ends.
#pragma once

#include <cstdio>
#include <cstdlib>

inline void require(bool holds, int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "line %d does not hold\n", line);
  std::abort();
}
