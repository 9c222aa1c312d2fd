#include "runner/init_keeper.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace isogate {
namespace {

constexpr std::chrono::seconds kIdle{10};
constexpr int kPatienceMs = 10'000;

}  // namespace

Result<void> InitKeeper::start() {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    return os_error("cannot start a thread", error.code().value());
  }
  return {};
}

InitKeeper::~InitKeeper() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void InitKeeper::keep_ready(const std::shared_ptr<Enclosure>& enclosure) {
  {
    const std::lock_guard lock(mutex_);
    wanted_.emplace_back(enclosure);
  }
  changed_.notify_one();
}

void InitKeeper::bury(InitProcess init) {
  if (init.pid < 0) return;
  init.socket.reset();
  {
    const std::lock_guard lock(mutex_);
    dead_.push_back(std::move(init));
  }
  changed_.notify_one();
}

void InitKeeper::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return dead_.empty() && !busy_; });
}

// What cannot be ended in a while is held back by the kernel (a stuck disk): it stays a zombie of this
// process.
void InitKeeper::reap(InitProcess init) {
  init.socket.reset();
  pollfd slot = {init.pidfd.get(), POLLIN, 0};
  while (::poll(&slot, 1, kPatienceMs) < 0 && errno == EINTR) {
  }
  ::syscall(SYS_pidfd_send_signal, init.pidfd.get(), SIGKILL, nullptr, 0);
  while (::waitpid(init.pid, nullptr, __WALL | WNOHANG) < 0 && errno == EINTR) {
  }
}

void InitKeeper::prepare(const std::weak_ptr<Enclosure>& place) {
  const auto enclosure = place.lock();
  if (enclosure == nullptr || !enclosure->wants_ready()) return;
  auto init = make_(*enclosure);
  if (!init) return;  // the next run meets the same, and says so
  enclosure->put_ready(std::move(*init));
  const auto same = [&](const auto& other) { return other.lock() == enclosure; };
  if (std::none_of(watched_.begin(), watched_.end(), same)) watched_.push_back(place);
}

void InitKeeper::throw_away_idle() {
  std::erase_if(watched_, [](const auto& place) {
    const auto enclosure = place.lock();
    if (enclosure == nullptr) return true;
    if (auto init = enclosure->take_idle(Clock::now() - kIdle); init.pid >= 0) reap(std::move(init));
    return enclosure->wants_ready();
  });
}

void InitKeeper::work() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::unique_lock lock(mutex_);
  while (!ending_ || !dead_.empty()) {
    if (wanted_.empty() && dead_.empty()) {
      idle_.notify_all();
      const auto woken = [this] { return ending_ || !wanted_.empty() || !dead_.empty(); };
      if (watched_.empty()) {
        changed_.wait(lock, woken);
      } else {
        changed_.wait_for(lock, kIdle / 4, woken);
      }
    }
    busy_ = true;
    if (!wanted_.empty() && !ending_) {
      const auto place = std::move(wanted_.front());
      wanted_.pop_front();
      lock.unlock();
      prepare(place);
      lock.lock();
    } else if (!dead_.empty()) {
      InitProcess init = std::move(dead_.front());
      dead_.pop_front();
      lock.unlock();
      reap(std::move(init));
      lock.lock();
    } else {
      lock.unlock();
      throw_away_idle();
      lock.lock();
    }
    busy_ = false;
  }
  idle_.notify_all();
}

}  // namespace isogate
