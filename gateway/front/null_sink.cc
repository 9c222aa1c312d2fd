#include "gateway/front/null_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace isogate::front {

ssize_t discard_from_pipe(int pipe, size_t most) {
  static const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  constexpr size_t kAtOnce = 1 << 20;
  if (null >= 0)
    return ::splice(pipe, nullptr, null, nullptr, std::min(most, kAtOnce), SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  std::array<char, 65536> scratch;  // NOLINT: filled by read
  return ::read(pipe, scratch.data(), std::min(most, scratch.size()));
}

}  // namespace isogate::front
