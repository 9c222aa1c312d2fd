#include "runner/exec/spawn/spawn_rescue.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "lib/fd.h"
#include "lib/thread.h"
#include "runner/exec/spawn/spawn.h"

namespace isogate {
namespace {

constexpr std::chrono::milliseconds kRescueInterval{100};

void rescue(StartUnderWay& start) {
  if (std::atomic_ref(start.started).load(std::memory_order_acquire) != 0 || !is_signalled(start.cancel_fd))
    return;
  if (__atomic_load_n(start.stage, __ATOMIC_ACQUIRE) == kStageBorn) return;
  const int pidfd = std::atomic_ref(start.pidfd).load(std::memory_order_relaxed);
  if (pidfd >= 0) ::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
}

}  // namespace

Result<void> SpawnRescuer::start() {
  return start_thread(thread_, "cannot start a thread", [this] { look_after_all(); });
}

SpawnRescuer::~SpawnRescuer() { end_thread(thread_, mutex_, ending_, changed_); }

void SpawnRescuer::look_after_all() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (starts_.empty()) {
      asleep_ = true;
      changed_.wait(lock, [this] { return ending_ || !starts_.empty(); });
      asleep_ = false;
    }
    changed_.wait_for(lock, kRescueInterval, [this] { return ending_; });
    for (StartUnderWay* start : starts_) rescue(*start);
  }
}

SpawnRescuer::Watch::Watch(SpawnRescuer& rescuer, StartUnderWay& start)
    : rescuer_(rescuer), watched_(start.cancel_fd >= 0) {
  if (!watched_) return;
  node_.push_back(&start);
  bool wake = false;
  {
    const std::lock_guard lock(rescuer_.mutex_);
    place_ = node_.begin();
    rescuer_.starts_.splice(rescuer_.starts_.end(), node_);
    wake = rescuer_.asleep_;
  }
  if (wake) rescuer_.changed_.notify_one();
}

SpawnRescuer::Watch::~Watch() {
  if (!watched_) return;
  const std::lock_guard lock(rescuer_.mutex_);
  rescuer_.starts_.erase(place_);
}

}  // namespace isogate
