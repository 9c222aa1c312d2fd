// Makes inits ahead, throws away what nobody used, and reaps those that have reported: the work that a run
// need not wait for. One thread, which sleeps while there is nothing to do. Any thread may call.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include "runner/enclosure.h"

namespace isogate {

class InitKeeper {
 public:
  using Make = std::function<Result<InitProcess>(Enclosure&)>;  // called on the keeper's thread

  explicit InitKeeper(Make make) : make_(std::move(make)) {}
  Result<void> start();  // once, before the other calls
  ~InitKeeper();         // what still waits is ended and reaped first
  InitKeeper(const InitKeeper&) = delete;
  InitKeeper& operator=(const InitKeeper&) = delete;

  void keep_ready(const std::shared_ptr<Enclosure>& enclosure);
  void bury(InitProcess init);  // its socket is closed, which ends it
  void drain();                 // returns when all that was to be buried is

 private:
  using Clock = Enclosure::Clock;
  void work();
  void prepare(const std::weak_ptr<Enclosure>& place);
  void throw_away_idle();
  static void reap(InitProcess init);

  Make make_;
  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<InitProcess> dead_;
  std::deque<std::weak_ptr<Enclosure>> wanted_;
  std::vector<std::weak_ptr<Enclosure>> watched_;  // the keeper's thread only
  bool busy_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace isogate
