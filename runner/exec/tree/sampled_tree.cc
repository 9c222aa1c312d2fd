#include "runner/exec/tree/sampled_tree.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "runner/exec/tree/process_usage.h"

namespace isogate {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kKept{100};
constexpr int kMostBlind = 10;
constexpr long kMostPids = 1 << 16;

nanoseconds share_of(nanoseconds time, uint64_t millis) {
  return nanoseconds(static_cast<nanoseconds::rep>(static_cast<double>(time.count()) *
                                                   static_cast<double>(millis) / 1000.0));
}

nanoseconds of_ticks(uint64_t ticks) {
  static const long per_second = ::sysconf(_SC_CLK_TCK);
  return nanoseconds(std::chrono::seconds(1)) * static_cast<int64_t>(ticks) / per_second;
}

uint64_t bytes_of_pages(uint64_t pages) {
  static const uint64_t size = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return pages * size;
}

// A process that has changed its parent during the walk appears twice.
void keep_first_of_each(std::vector<int>& pids) {
  std::set<int> seen;
  std::erase_if(pids, [&](int pid) { return !seen.insert(pid).second; });
}

// An existing process that cannot be read must not count as nothing: descriptors may have run out.
bool is_gone(int pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

std::optional<std::vector<int>> descendants(int root, TreeWalk walk, bool stop) {
  std::vector<int> pids(64);
  for (;;) {
    const long found = raw_list_descendants(root, walk, stop, pids.data(), static_cast<long>(pids.size()));
    if (found < 0 || found > kMostPids) return std::nullopt;
    const bool whole = found <= static_cast<long>(pids.size());
    pids.resize(static_cast<size_t>(found));
    if (!whole) continue;
    keep_first_of_each(pids);
    return pids;
  }
}

}  // namespace

bool CpuAllowance::allows(nanoseconds passed, nanoseconds used) {
  credit_ = std::min(credit_ + share_of(passed, millis_), share_of(kKept, millis_));
  if (used > used_) {
    credit_ -= used - used_;
    used_ = used;
  }
  const nanoseconds enough = held_ ? share_of(kKept, millis_) / 4 : nanoseconds(0);
  held_ = credit_ < enough;
  return !held_;
}

SampledTree::SampledTree(const Limits& limits, const int* reaper, TreeWalk walk)
    : limits_(limits),
      reaper_(reaper),
      walk_(walk),
      allowance_(limits.get(ISOGATE_LIMIT_CPU_MILLIS)),
      last_(std::chrono::steady_clock::now()) {}

std::optional<SampledTree::Usage> SampledTree::usage() {
  const int root = *reaper_;
  auto pids = descendants(root, walk_, false);
  if (!pids) return std::nullopt;
  Usage sum;
  std::map<int, Own> own;
  uint64_t grown = 0;
  for (const int pid : *pids) {
    const auto each = process_usage(pid);
    if (!each && !is_gone(pid)) return std::nullopt;
    if (!each) continue;
    sum.tasks += each->tasks;
    sum.resident += bytes_of_pages(each->resident_pages);
    sum.cpu += of_ticks(each->cpu_ticks + each->waited_cpu_ticks);
    const auto before = own_.find(pid);
    const bool known = before != own_.end() && before->second.start_ticks == each->start_ticks;
    grown += each->cpu_ticks - (known ? std::min(before->second.cpu_ticks, each->cpu_ticks) : 0);
    own[pid] = {each->start_ticks, each->cpu_ticks};
    sum.pids.push_back(pid);
    if (each->stopped) sum.stopped.push_back(pid);
  }
  for (const auto& [pid, was] : own_)  // a walk may miss one that lives
    if (!own.contains(pid) && !is_gone(pid)) own.emplace(pid, was);
  own_ = std::move(own);
  grown_ticks_ += grown;
  if (const auto reaper = process_usage(root)) sum.cpu += of_ticks(reaper->waited_cpu_ticks);
  return sum;
}

// Shared memory counts once, unless a process hides its memory.
uint64_t SampledTree::memory_of(const Usage& usage) const {
  if (usage.resident <= limits_.get(ISOGATE_LIMIT_MEMORY_BYTES)) return usage.resident;
  uint64_t sum = 0;
  for (const int pid : usage.pids) {
    const auto each = process_usage(pid);
    if (each) sum += own_memory(pid).value_or(bytes_of_pages(each->resident_pages));
  }
  return sum;
}

void SampledTree::end(Exceeded why) {
  exceeded_ = why;
  ::kill(*reaper_, SIGCONT);
  raw_kill_descendants(*reaper_, walk_);
}

// Children first: then no parent notices a stopped child.
void SampledTree::release() {
  for (auto pid = held_.rbegin(); pid != held_.rend(); ++pid) ::kill(*pid, SIGCONT);
  held_.clear();
  its_own_.clear();
}

void SampledTree::hold(const Usage& usage) {
  if (held_.empty()) its_own_ = std::set<int>(usage.stopped.begin(), usage.stopped.end());
  auto pids = descendants(*reaper_, walk_, true);
  if (!pids) return;
  held_ = std::move(*pids);
  std::erase_if(held_, [&](int pid) { return its_own_.contains(pid); });
}

void SampledTree::judge(const Usage& usage, nanoseconds passed) {
  const uint64_t pids = limits_.get(ISOGATE_LIMIT_PIDS), memory = limits_.get(ISOGATE_LIMIT_MEMORY_BYTES);
  if (pids != 0 && usage.tasks > pids) return end(Exceeded::pids);
  if (memory != 0 && memory_of(usage) > memory) return end(Exceeded::memory);
  if (limits_.get(ISOGATE_LIMIT_CPU_MILLIS) == 0) return;
  most_used_ = std::max({most_used_, usage.cpu, of_ticks(grown_ticks_)});
  if (!allowance_.allows(passed, most_used_)) return hold(usage);
  if (!held_.empty()) release();
}

void SampledTree::look(std::chrono::steady_clock::time_point now) {
  const int root = std::atomic_ref(*const_cast<int*>(reaper_)).load(std::memory_order_acquire);
  if (root == 0) return;
  const auto reaper = process_usage(root);
  if (!reaper && is_gone(root)) return;  // and its run with it
  if (reaper && start_ticks_ == 0) start_ticks_ = reaper->start_ticks;
  if (reaper && reaper->start_ticks != start_ticks_) return;
  if (exceeded_ != Exceeded::nothing) return end(exceeded_);
  const auto found = reaper ? usage() : std::nullopt;
  blind_ = found ? 0 : blind_ + 1;
  if (blind_ >= kMostBlind) return end(Exceeded::unseen);
  if (found) judge(*found, now - std::exchange(last_, now));
}

}  // namespace isogate
