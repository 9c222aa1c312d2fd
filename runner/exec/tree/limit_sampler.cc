#include "runner/exec/tree/limit_sampler.h"

#include <chrono>

#include "lib/thread.h"

namespace isogate {
namespace {

constexpr std::chrono::milliseconds kSampleInterval{10};
constexpr int kOthers = 4;  // it uses at most a fifth of the time

}  // namespace

Result<void> LimitSampler::start() {
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) return {};
  return start_thread(thread_, "cannot start the thread that samples limits", [this] { look_after_all(); });
}

LimitSampler::~LimitSampler() { end_thread(thread_, mutex_, ending_, changed_); }

void LimitSampler::look_after_all() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (trees_.empty()) changed_.wait(lock, [this] { return ending_ || !trees_.empty(); });
    const auto begun = std::chrono::steady_clock::now();
    for (SampledTree& tree : trees_) tree.look(begun);
    const auto took = std::chrono::steady_clock::now() - begun;
    changed_.wait_for(lock, std::max<std::chrono::nanoseconds>(kSampleInterval, kOthers * took),
                      [this] { return ending_; });
  }
}

LimitSampler::Watch::Watch(LimitSampler& sampler, const Limits& limits, const int* reaper)
    : sampler_(sampler) {
  const std::lock_guard lock(sampler_.mutex_);
  sampler_.trees_.emplace_front(limits, reaper, sampler_.walk_);
  tree_ = sampler_.trees_.begin();
  sampler_.changed_.notify_one();
}

Exceeded LimitSampler::Watch::exceeded() const {
  const std::lock_guard lock(sampler_.mutex_);
  return tree_->exceeded();
}

LimitSampler::Watch::~Watch() {
  const std::lock_guard lock(sampler_.mutex_);
  sampler_.trees_.erase(tree_);
}

}  // namespace isogate
