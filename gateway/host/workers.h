// The threads of a backend host. Each receives from the front's socket itself: a separate reader costs
// twice as much. When the last idle thread takes a record, another is started, up to a cap; threads
// that stay idle for a while end.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "gateway/ipc/channel.h"

namespace isogate {

class Workers {
 public:
  struct Work {
    // On a worker's thread; must not throw. False: the record was malformed.
    std::function<bool(ipc::Received)> serve;
    // Once or more, from any worker: the channel has ended, or is broken (`why` is the reason).
    std::function<void(const Error& why)> ended;
  };
  // `socket` gets a receive timeout, kIdleTime.
  Workers(int socket, size_t most, Work work);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();  // all have ended: wait() was true

  Result<void> start();

  // [main] Every kIdleTime: ends surplus threads, or starts one where that failed before and none is idle.
  // Joins threads that have ended.
  void trim();

  // [main] After shutdown(SHUT_RD) of the socket: until every thread has ended. False at the deadline.
  // Joins those that have.
  bool wait(std::chrono::steady_clock::time_point deadline);

  [[nodiscard]] size_t count() const;

  static constexpr std::chrono::seconds kIdleTime{5};
  static constexpr size_t kSpare = 2;  // idle ones that stay

 private:
  static void* enter(void* self) noexcept;
  void run() noexcept;
  bool start_one();  // with mutex_ held
  void taken();
  bool returned();  // false: this thread is to end
  bool dismissed();
  bool leaves();  // with mutex_ held: one of the surplus, no longer counted as idle
  void join_ended();

  const int socket_;
  const size_t most_;
  const Work work_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t threads_ = 0, idle_ = 0, least_idle_ = 0, surplus_ = 0;
  bool closing_ = false;
  std::vector<pthread_t> ended_;
};

}  // namespace isogate
