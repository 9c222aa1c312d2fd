#include "plugins/k8s/liveness.h"

#include "lib/thread.h"
#include "plugins/common/or_throw.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;

// For a reply, and between two tries, where the longer time has passed already.
constexpr milliseconds kQuick{200};

}  // namespace

Liveness::Liveness(milliseconds interval, milliseconds patience, std::function<void(const std::string&)> log)
    : interval_(interval), patience_(patience), log_(std::move(log)), cancel_(or_throw(make_event())) {}

Liveness::~Liveness() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    signal_event(cancel_.get());
    for (const auto& each : examined_)
      if (const auto link = each.lock()) link->close("the backend ends");
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& each : threads) each.join();
}

// With the mutex held.
void Liveness::start() {
  threads_.reserve(threads_.size() + 1);
  threads_.push_back(start_thread([this] { examine_due(); }));
  ++idle_;
}

void Liveness::watch(const std::shared_ptr<sdk::RunnerLink>& link, Way way) {
  if (interval_ == milliseconds::zero()) return;
  const std::lock_guard lock(mutex_);
  due_.emplace(Clock::now() + interval_, Watched{link, std::move(way)});
  if (threads_.empty()) start();
  changed_.notify_all();
}

void Liveness::examine_due() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const auto next = due_.begin();
    const auto when = next == due_.end() ? Clock::time_point::max() : next->first;
    if (when > Clock::now()) {
      if (next == due_.end())
        changed_.wait(lock);
      else
        changed_.wait_until(lock, when);
      continue;
    }
    Watched watched = std::move(next->second);
    due_.erase(next);
    const auto link = watched.link.lock();
    if (!link) continue;
    examined_.push_back(link);
    if (--idle_ == 0 && threads_.size() < kMostExaminers) start();
    lock.unlock();
    examine(*link, watched.way);
    const bool there = link->alive();
    lock.lock();
    ++idle_;
    std::erase_if(examined_, [&](const auto& each) { return each.lock() == link; });
    if (there) due_.emplace(Clock::now() + interval_, std::move(watched));
    changed_.notify_all();
  }
}

void Liveness::examine(sdk::RunnerLink& link, const Way& way) {
  if (!link.ping(patience_)) {
    if (link.alive() && twice_silent(link, way)) replace(link, way, "its runner was stuck");
    return;
  }
  for (int tries = 0; tries < 2; ++tries) {
    if (way.is_busy() || link.prove(patience_) || !link.alive()) return;
    if (!pause_until(Clock::now() + kQuick)) return;
  }
  if (!way.is_busy() && is_ours_alone(way)) replace(link, way, "its runner runs no programs any more");
}

bool Liveness::is_ours_alone(const Way& way) const {
  try {
    return !way.is_shared(sdk::Call(ending_));
  } catch (const sdk::Error&) {  // not known
    return false;
  }
}

void Liveness::replace(sdk::RunnerLink& link, const Way& way, const char* why) {
  link.close(why);
  try {
    way.remove(sdk::Call(ending_));
  } catch (const std::exception& error) {
    log_(std::string("a pod that is stuck stays until its sandbox's next call: ") + error.what());
  }
}

// A runner that answers elsewhere keeps its pod; its link is closed if that is what is dead.
bool Liveness::twice_silent(sdk::RunnerLink& link, const Way& way) {
  for (int tries = 0; tries < 2; ++tries) {
    const auto begun = Clock::now();
    const Found found = way.try_another(sdk::Call(ending_));
    if (found == Found::kUnknown || !link.alive()) return false;
    if (found == Found::kSpeaks) {
      if (!link.ping(patience_))
        link.close("nothing comes over its connection, the runner answers over others");
      return false;
    }
    if (!pause_until(begun + patience_)) return false;
  }
  return !link.ping(kQuick);
}

bool Liveness::pause_until(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_until(lock, until, [this] { return ended_; });
}

}  // namespace isogate::k8s
