// Sandboxes that are created in advance, so that a new agent's first call takes one. A thread keeps the
// wanted number ready: it lives as long as the pool. The backend's Source makes, checks and removes them.
//
// The pool's functions are for any thread, those of the Source are called by the pool.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "isogate/backend.hpp"
#include "lib/fd.h"
#include "lib/hash.h"
#include "lib/limits.h"
#include "lib/thread.h"
#include "plugins/common/or_throw.h"

namespace isogate {

// An unused sandbox id: "isg-" and 130 random bits in base32.
inline std::string random_sandbox_id() { return "isg-" + base32_lower(random_bytes(17)).substr(0, 26); }

// `Ready` is an unassigned sandbox. It can be moved, and has the members `Limits limits`, its own, and
// `bool warm() const`: it can be taken unchanged. warm() is called with the pool locked, and must not
// wait.
template <typename Ready>
class WarmPool {
 public:
  // An exception here ends the round: it is logged, and the next round starts after a second, later
  // after a minute.
  class Source {
   public:
    // Several threads at once. `call`: cancelled when the pool ends.
    virtual Ready make(const Limits& limits, const sdk::Call& call) = 0;
    // Removes it with everything that belongs to it. False: it stays for now, and that was
    // logged.
    virtual bool remove(Ready ready) noexcept = 0;
    // Further work in each round, after dead sandboxes are removed and before others are made.
    virtual void tend(const sdk::Call& call) = 0;
    // False: none is made now. Must not wait.
    [[nodiscard]] virtual bool may_make() const { return true; }

   protected:
    ~Source() = default;
  };

  // Keeps `size` ready, the first ones with these limits, and makes up to `at_once` at the same time. `size`
  // 0: it only removes and cleans up. `source` is borrowed.
  WarmPool(Source& source, sdk::Host host, size_t size, size_t at_once, const Limits& limits);
  WarmPool(const WarmPool&) = delete;
  WarmPool& operator=(const WarmPool&) = delete;
  // Removes the unassigned sandboxes, until one cannot be removed: it does not retry.
  ~WarmPool();

  // A sandbox with these limits. None: the caller must make one. Limits that are requested twice in a row
  // and not found are made from then on.
  std::optional<Ready> pick(const Limits& limits);
  // The first for which `is_wanted` returns true, which is called with the pool locked; the caller may
  // put() it back.
  template <typename Predicate>
  std::optional<Ready> take_if(const Predicate& is_wanted);
  void put(Ready ready);
  // How many are ready, in a few words.
  [[nodiscard]] std::string text() const;

 private:
  using milliseconds = std::chrono::milliseconds;
  static constexpr milliseconds kLook{5'000}, kFirstPause{1'000}, kLongestPause{60'000};

  void run();
  void make_some(const sdk::Call& call);
  [[nodiscard]] size_t missing() const;  // with the mutex held

  Source& source_;
  const sdk::Host host_;
  const size_t size_, at_once_;
  const Fd stop_;  // an eventfd: cancels the thread's current work
  const isogate_call stopping_{sizeof(isogate_call), stop_.get(), INT64_MAX, {}};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  Limits wanted_;
  unsigned misses_ = 1;  // takes in a row that found none of their limits
  std::deque<Ready> ready_;
  std::thread thread_;
};

template <typename Ready>
WarmPool<Ready>::WarmPool(Source& source, sdk::Host host, size_t size, size_t at_once, const Limits& limits)
    : source_(source),
      host_(host),
      size_(size),
      at_once_(at_once),
      stop_(or_throw(make_event())),
      wanted_(limits) {
  thread_ = start_thread([this] { run(); });
}

template <typename Ready>
WarmPool<Ready>::~WarmPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  signal_event(stop_.get());
  changed_.notify_all();
  thread_.join();
  for (bool removed = true; removed && !ready_.empty(); ready_.pop_front())
    removed = source_.remove(std::move(ready_.front()));
}

template <typename Ready>
void WarmPool<Ready>::run() {
  const sdk::Call call(stopping_);
  const auto is_unfit = [this](const Ready& each) {
    return !each.warm() || (misses_ > 1 && each.limits != wanted_);
  };
  for (milliseconds pause = kFirstPause;;) {
    milliseconds time = kLook;
    bool died = false;  // then others would, too: they are not made without a pause
    try {
      while (auto unfit = take_if(is_unfit)) {
        died |= !unfit->warm();
        source_.remove(std::move(*unfit));
      }
      source_.tend(call);
      make_some(call);
      pause = kFirstPause;
    } catch (const std::exception& error) {
      if (call.cancelled()) return;
      host_.log(ISOGATE_LOG_WARN, "no sandbox can be made ahead, next try in " +
                                      std::to_string(pause.count() / 1000) + " s: " + error.what());
      time = std::exchange(pause, std::min(pause * 2, kLongestPause));
    }
    const bool hurries = pause == kFirstPause && !died;
    if (died) time = std::min(time, kFirstPause);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [&] { return ending_ || (hurries && missing() > 0); });
    if (ending_) return;
  }
}

template <typename Ready>
size_t WarmPool<Ready>::missing() const {
  return source_.may_make() ? size_ - std::min(size_, ready_.size()) : 0;
}

template <typename Ready>
void WarmPool<Ready>::make_some(const sdk::Call& call) {
  std::unique_lock lock(mutex_);
  const Limits wanted = wanted_;
  const size_t count = ending_ ? 0 : std::min(missing(), at_once_);
  lock.unlock();
  std::vector<std::future<Ready>> making;
  const auto how = count == 1 ? std::launch::deferred : std::launch::async;
  std::exception_ptr failure;
  try {
    for (size_t i = 0; i < count; ++i)
      making.push_back(std::async(how, [&] { return source_.make(wanted, call); }));
  } catch (const std::system_error&) {  // no more threads: fewer at a time
    failure = std::current_exception();
  }
  for (auto& each : making) {
    try {
      put(each.get());
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

template <typename Ready>
std::optional<Ready> WarmPool<Ready>::pick(const Limits& limits) {
  auto found = take_if([&](const Ready& each) { return each.limits == limits && each.warm(); });
  const std::lock_guard lock(mutex_);
  if (found)
    misses_ = 0;
  else if (wanted_ != limits && ++misses_ > 1)
    wanted_ = limits;
  changed_.notify_all();
  return found;
}

template <typename Ready>
template <typename Predicate>
std::optional<Ready> WarmPool<Ready>::take_if(const Predicate& is_wanted) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(ready_.begin(), ready_.end(), is_wanted);
  if (found == ready_.end()) return std::nullopt;
  std::optional<Ready> taken(std::move(*found));
  ready_.erase(found);
  return taken;
}

template <typename Ready>
void WarmPool<Ready>::put(Ready ready) {
  const std::lock_guard lock(mutex_);
  ready_.push_back(std::move(ready));
}

template <typename Ready>
std::string WarmPool<Ready>::text() const {
  const std::lock_guard lock(mutex_);
  return std::to_string(ready_.size()) + " of " + std::to_string(size_) + " sandboxes ready ahead";
}

}  // namespace isogate
