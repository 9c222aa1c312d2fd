#include "runner/enclosure/init_keeper.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/thread.h"

namespace isogate {
namespace {

constexpr std::chrono::seconds kIdle{10};
constexpr std::chrono::milliseconds kTick{500};
constexpr int kKeeperPatienceMs = 100;

// False: the kernel holds it back (a stuck disk).
bool reap(InitProcess& init, int patience_ms) {
  init.socket.reset();
  pollfd slot = {init.pidfd.get(), POLLIN, 0};
  int ready = 0;
  for (int tries = 0; tries < 2 && ready == 0; ++tries) {
    do {
      ready = ::poll(&slot, 1, patience_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) ::syscall(SYS_pidfd_send_signal, init.pidfd.get(), SIGKILL, nullptr, 0);
  }
  while (ready != 0 && ::waitpid(init.pid, nullptr, __WALL | WNOHANG) < 0 && errno == EINTR) {
  }
  if (std::exchange(init.departs, false)) init.place->departures().end();
  if (ready == 0) return false;
  if (const auto place = std::exchange(init.place, nullptr)) place->groups()->release(std::move(init.slot));
  if (init.tally != nullptr) init.tally->remove();
  return true;
}

}  // namespace

Result<void> InitKeeper::start() {
  return start_thread(thread_, "cannot start a thread", [this] { work(); });
}

InitKeeper::~InitKeeper() { end_thread(thread_, mutex_, ending_, changed_); }

void InitKeeper::keep_ready(Enclosure& enclosure) {
  if (!enclosure.ask_for_keeper()) return;
  {
    const std::lock_guard lock(mutex_);
    wanted_.emplace_back(enclosure.weak_from_this());
  }
  changed_.notify_one();
}

void InitKeeper::reap_later(InitProcess init) {
  if (init.pid < 0) return;
  init.socket.reset();
  {
    const std::lock_guard lock(mutex_);
    dead_.push_back(std::move(init));
  }
  changed_.notify_one();
}

void InitKeeper::reap_now(InitProcess init) {
  if (init.pid >= 0 && !reap(init, kKeeperPatienceMs)) reap_later(std::move(init));
}

void InitKeeper::prepare(const std::weak_ptr<Enclosure>& place) {
  const auto enclosure = place.lock();
  if (enclosure == nullptr) return;
  if (enclosure->begin_making()) {
    auto init = make_(*enclosure);  // if it fails, the next run fails in the same way, and reports it
    if (init) {
      init->lasts = true;
      enclosure->put_ready(std::move(*init));
    }
    enclosure->end_making();
  }
  const auto same = [&](const auto& other) { return other.lock() == enclosure; };
  if (std::none_of(watched_.begin(), watched_.end(), same)) watched_.push_back(place);
}

void InitKeeper::reap_dead(std::deque<InitProcess> dead, int patience_ms) {
  for (InitProcess& init : dead) {
    if (!reap(init, patience_ms)) late_.push_back(std::move(init));
  }
}

void InitKeeper::throw_away_idle() {
  std::erase_if(watched_, [this](const auto& place) {
    const auto enclosure = place.lock();
    if (enclosure == nullptr) return true;
    for (InitProcess init; (init = enclosure->take_idle(Clock::now() - kIdle)).pid >= 0;)
      if (!reap(init, kKeeperPatienceMs)) late_.push_back(std::move(init));
    return enclosure->stop_watching();
  });
  reap_dead(std::exchange(late_, {}), 0);  // the others are not waited for behind them
}

void InitKeeper::work() {
  Clock::time_point next_look = Clock::now() + kTick;
  std::unique_lock lock(mutex_);
  while (!ending_ || !dead_.empty()) {
    const auto woken = [this] { return ending_ || !wanted_.empty() || !dead_.empty(); };
    if (watched_.empty() && late_.empty()) {
      changed_.wait(lock, woken);
    } else {
      changed_.wait_until(lock, next_look, woken);
    }
    std::weak_ptr<Enclosure> place;
    if (!wanted_.empty()) {
      place = std::move(wanted_.front());
      wanted_.pop_front();
    }
    std::deque<InitProcess> dead = std::exchange(dead_, {});
    const bool ending = ending_;
    lock.unlock();
    if (!ending) prepare(place);  // first: a run may be waiting for it, and none for these
    reap_dead(std::move(dead), kKeeperPatienceMs);
    if (Clock::now() >= next_look) {
      throw_away_idle();
      next_look = Clock::now() + kTick;
    }
    lock.lock();
  }
}

}  // namespace isogate
