#include "gateway/cli/progress.h"

#include <unistd.h>

#include <cstdio>

#include "gateway/cli/output.h"

namespace isogate::cli {

Progress::Progress() : shown_(::isatty(2) != 0) {}

Progress::~Progress() {
  if (drawn_) [[maybe_unused]]
    auto ignored = write_all(2, "\r\x1b[K");
}

void Progress::moved(uint64_t bytes) {
  bytes_ += bytes;
  const auto now = Clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + std::chrono::milliseconds(200);
  const double mib = static_cast<double>(bytes_) / (1 << 20);
  const double seconds = std::chrono::duration<double>(now - began_).count();
  char line[96];
  const int size =
      std::snprintf(line, sizeof line, "\r\x1b[K%.1f MiB in %.0f s, %.1f MiB/s", mib, seconds, mib / seconds);
  [[maybe_unused]] auto ignored = write_all(2, {line, static_cast<size_t>(size)});
  drawn_ = true;
}

}  // namespace isogate::cli
