// Limits of runs without a cgroup: samples what their trees use every 10 ms.
//
// A tree with more memory or more processes than its limit is killed; one that uses more of the processors is
// stopped (SIGSTOP) until its share has grown again. Between two samples it may use more, and some use cannot
// be counted: memory of files on a tmpfs, processor time of children whose end is ignored. So it stops faulty
// programs, and slows down programs that try to evade it; the limit of their sandbox bounds all of them. One
// thread per sampler, which sleeps while nothing is watched.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "lib/error.h"
#include "runner/exec/tree/sampled_tree.h"

namespace isogate {

class LimitSampler {  // any thread
 public:
  explicit LimitSampler(TreeWalk walk) : walk_(walk) {}
  ~LimitSampler();
  LimitSampler(const LimitSampler&) = delete;
  LimitSampler& operator=(const LimitSampler&) = delete;

  Result<void> start();  // before a Watch; may be repeated

  // The tree below a reaper, while the Watch lives. `reaper` becomes its pid when it starts;
  // borrowed.
  class Watch {
   public:
    Watch(LimitSampler& sampler, const Limits& limits, const int* reaper);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    [[nodiscard]] Exceeded exceeded() const;  // once the run has ended

   private:
    LimitSampler& sampler_;
    std::list<SampledTree>::iterator tree_;
  };

 private:
  void look_after_all();

  const TreeWalk walk_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<SampledTree> trees_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace isogate
