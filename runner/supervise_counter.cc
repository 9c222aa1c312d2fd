// Raw code: see raw_syscall.h. What two small files of a cgroup say.
#include "runner/raw_syscall.h"
#include "runner/supervise.h"

namespace isogate {
namespace {

// The number after `name` at the start of a line; -1: no such line, or the file cannot be read.
int64_t counter(int fd, const char* name) {
  char text[1024];
  const long size = raw::call(SYS_pread64, fd, text, sizeof text, 0);
  for (long at = 0; at < size;) {
    long i = 0;
    while (at + i < size && name[i] != '\0' && text[at + i] == name[i]) ++i;
    if (name[i] == '\0' && at + i < size && text[at + i] == ' ') {
      int64_t value = 0;
      for (long digit = at + i + 1; digit < size && text[digit] >= '0' && text[digit] <= '9'; ++digit) {
        value = value * 10 + (text[digit] - '0');
      }
      return value;
    }
    while (at < size && text[at] != '\n') ++at;
    ++at;
  }
  return -1;
}

}  // namespace

uint64_t raw_oom_kills(int fd) {
  const int64_t kills = counter(fd, "oom_kill");
  return kills < 0 ? 0 : static_cast<uint64_t>(kills);
}

bool raw_populated(int events_fd) { return counter(events_fd, "populated") != 0; }

}  // namespace isogate
