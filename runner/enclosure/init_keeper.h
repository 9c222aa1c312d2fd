// Makes inits in advance, ends unused ones, and reaps those that have reported: work that a run need not
// wait for. One thread, which sleeps while there is nothing to do. Any thread may call.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include "runner/enclosure/enclosure.h"

namespace isogate {

class InitKeeper {
 public:
  using Make = std::function<Result<InitProcess>(Enclosure&)>;  // called on the keeper's thread

  explicit InitKeeper(Make make) : make_(std::move(make)) {}
  Result<void> start();  // once, before the other calls
  ~InitKeeper();         // what still waits is ended and reaped first
  InitKeeper(const InitKeeper&) = delete;
  InitKeeper& operator=(const InitKeeper&) = delete;

  // Makes an init if none waits, and ends those that wait too long.
  void keep_ready(Enclosure& enclosure);
  // Its socket is closed, which ends it; it is reaped later.
  void reap_later(InitProcess init);
  // The same at once. An init that the kernel delays is reaped later.
  void reap_now(InitProcess init);

 private:
  using Clock = Enclosure::Clock;
  void work();
  void prepare(const std::weak_ptr<Enclosure>& place);
  void reap_dead(std::deque<InitProcess> dead, int patience_ms);
  void throw_away_idle();

  Make make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<InitProcess> dead_;
  std::deque<std::weak_ptr<Enclosure>> wanted_;
  bool ending_ = false;
  // The keeper's thread only:
  std::vector<std::weak_ptr<Enclosure>> watched_;
  std::deque<InitProcess> late_;  // killed, and held back by the kernel
  std::thread thread_;
};

}  // namespace isogate
