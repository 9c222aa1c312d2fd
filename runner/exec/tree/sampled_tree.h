// One tree that a LimitSampler watches: its use, and the consequence.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "lib/limits.h"
#include "runner/exec/tree/tree.h"

namespace isogate {

enum class Exceeded { nothing, memory, pids, unseen };  // unseen: the tree could no longer be sampled

// The nanoseconds of processor time that a share of the processors allows. Unused time is kept for a
// tenth of a second.
class CpuAllowance {
 public:
  explicit CpuAllowance(uint64_t cpu_millis) : millis_(cpu_millis) {}
  // `used`: in all. False: more than it was allowed, and not yet made up for.
  bool allows(std::chrono::nanoseconds passed, std::chrono::nanoseconds used);

 private:
  const uint64_t millis_;
  std::chrono::nanoseconds credit_{0}, used_{0};
  bool held_ = false;
};

class SampledTree {
 public:
  SampledTree(const Limits& limits, const int* reaper, TreeWalk walk);
  void look(std::chrono::steady_clock::time_point now);
  [[nodiscard]] Exceeded exceeded() const { return exceeded_; }

 private:
  struct Usage {
    uint64_t tasks = 0, resident = 0;
    std::chrono::nanoseconds cpu{0};  // of those that live, and of what they have waited for
    std::vector<int> pids, stopped;
  };
  std::optional<Usage> usage();
  [[nodiscard]] uint64_t memory_of(const Usage& usage) const;
  void judge(const Usage& usage, std::chrono::nanoseconds passed);
  void end(Exceeded why);
  void hold(const Usage& usage);
  void release();

  const Limits limits_;
  const int* const reaper_;
  const TreeWalk walk_;
  CpuAllowance allowance_;
  std::chrono::steady_clock::time_point last_;
  uint64_t start_ticks_ = 0;  // of the reaper; 0: not seen yet
  int blind_ = 0;             // looks in a row that saw nothing
  Exceeded exceeded_ = Exceeded::nothing;
  std::chrono::nanoseconds most_used_{0};
  // A program that ignores SIGCHLD waits for nobody: so the time of each process is also added up as it
  // grows.
  struct Own {
    uint64_t start_ticks, cpu_ticks;
  };
  std::map<int, Own> own_;  // of the last look
  uint64_t grown_ticks_ = 0;
  std::vector<int> held_;  // stopped by this, parents first
  std::set<int> its_own_;  // stopped by another process
};

}  // namespace isogate
