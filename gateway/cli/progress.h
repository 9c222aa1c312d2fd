// The progress of a long copy, only on a terminal: one line of stderr, from its second second on.
#pragma once

#include <chrono>
#include <cstdint>

namespace isogate::cli {

class Progress {
 public:
  Progress();
  ~Progress();  // removes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void moved(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  const bool shown_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point next_ = began_ + std::chrono::seconds(1);
  uint64_t bytes_ = 0;
  bool drawn_ = false;
};

}  // namespace isogate::cli
