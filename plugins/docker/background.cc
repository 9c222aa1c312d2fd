#include "plugins/docker/background.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "plugins/docker/or_throw.h"

namespace isogate::docker {
namespace {

using std::chrono::milliseconds;

constexpr int kFirstPause = 100, kLongestPause = 10'000;  // ms

// False: it was readable, so that it is time to end.
bool pause(int stop, int time) {
  pollfd end{stop, POLLIN, 0};
  return ::poll(&end, 1, time) == 0;
}

Fd timer_of(milliseconds most) {
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec when{};
  when.it_value = {most.count() / 1000, most.count() % 1000 * 1'000'000};
  if (!timer || ::timerfd_settime(timer.get(), 0, &when, nullptr) != 0)
    sdk::fail_with_errno("cannot set a timer", errno);
  return timer;
}

}  // namespace

struct Background::Task {
  std::string what;
  Work work;
  Fd stop;  // an eventfd
};

Background::~Background() {
  std::unique_lock lock(mutex_);
  for (const auto& [key, task] : tasks_) signal_event(task->stop.get());
  changed_.wait(lock, [this] { return tasks_.empty(); });
}

void Background::begin(const std::string& key, const std::string& what, Work work) {
  const auto task = std::make_shared<Task>(Task{what, std::move(work), or_throw(make_event())});
  const std::lock_guard lock(mutex_);
  if (!tasks_.emplace(key, task).second) return;
  // Signals are the host's.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this, key, task] { run(key, task); }).detach();
  } catch (const std::system_error& error) {
    tasks_.erase(key);
    host_.log(ISOGATE_LOG_ERROR, what + ": cannot start a thread for it: " + error.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Background::run(const std::string& key, const std::shared_ptr<Task>& task) {
  const isogate_call abi{sizeof abi, task->stop.get(), INT64_MAX, {}};
  std::string told;
  for (int wait = kFirstPause; pause(task->stop.get(), 0); wait = std::min(2 * wait, kLongestPause)) {
    try {
      task->work(sdk::Call(abi));
      told.clear();
      break;
    } catch (const std::exception& error) {
      const std::string why = error.what();
      if (why != told && pause(task->stop.get(), 0))
        host_.log(ISOGATE_LOG_WARN, task->what + ", tried again until it is done: " + why);
      told = why;
    }
    if (!pause(task->stop.get(), wait)) break;
  }
  if (!told.empty()) host_.log(ISOGATE_LOG_ERROR, task->what + ": not done: " + told);
  task->work = nullptr;  // and what it holds, before anybody is told
  const std::lock_guard lock(mutex_);
  tasks_.erase(key);
  changed_.notify_all();
}

bool Background::is_done(const std::string& key, milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [&] { return !tasks_.contains(key); });
}

void Background::cancel(const std::string& key, const sdk::Call& call) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = tasks_.find(key);
    if (found == tasks_.end()) return;
    signal_event(found->second->stop.get());
  }
  while (!is_done(key, milliseconds(20))) call.check();
}

Bounded::Bounded(milliseconds most, int also)
    : timer_(timer_of(most)),
      either_(::epoll_create1(EPOLL_CLOEXEC)),
      abi_{sizeof(isogate_call), either_.get(), INT64_MAX, {}},
      call_(abi_) {
  epoll_event readable{};
  readable.events = EPOLLIN;
  if (!either_ || ::epoll_ctl(either_.get(), EPOLL_CTL_ADD, timer_.get(), &readable) != 0 ||
      (also >= 0 && ::epoll_ctl(either_.get(), EPOLL_CTL_ADD, also, &readable) != 0))
    sdk::fail_with_errno("cannot watch a timer", errno);
}

}  // namespace isogate::docker
