#include "lib/fd.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstdint>

namespace isogate {

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return os_error("cannot make a pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

Result<Fd> make_event() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return os_error("cannot make an eventfd", errno);
  return Fd(fd);
}

void signal_event(int event_fd) {
  const uint64_t one = 1;
  while (::write(event_fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace isogate
