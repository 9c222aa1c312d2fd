#include "plugins/docker/background.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lib/fd.h"
#include "lib/thread.h"
#include "plugins/common/or_throw.h"

namespace isogate::docker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{100}, kLongestPause{10'000};

}  // namespace

struct Background::Task {
  std::string what;
  Work work;
  Fd stop, ended;  // eventfds
};

Background::~Background() {
  std::unique_lock lock(mutex_);
  for (const auto& [key, task] : tasks_) signal_event(task->stop.get());
  changed_.wait(lock, [this] { return tasks_.empty(); });
}

bool Background::begin(const std::string& key, const std::string& what, Work work) {
  const std::lock_guard lock(mutex_);
  if (tasks_.contains(key)) return true;
  try {
    const auto task =
        std::make_shared<Task>(Task{what, std::move(work), or_throw(make_event()), or_throw(make_event())});
    tasks_.emplace(key, task);
    start_thread([this, key, task] { run(key, task); }).detach();
    return true;
  } catch (const std::exception& error) {
    tasks_.erase(key);
    host_.log(ISOGATE_LOG_ERROR, what + ": cannot begin: " + error.what());
    return false;
  }
}

void Background::run(const std::string& key, const std::shared_ptr<Task>& task) {
  const isogate_call abi{sizeof abi, task->stop.get(), INT64_MAX, {}};
  std::string logged;
  for (milliseconds wait = kFirstPause; !is_signalled(task->stop.get());
       wait = std::min(2 * wait, kLongestPause)) {
    try {
      task->work(sdk::Call(abi));
      logged.clear();
      break;
    } catch (const std::exception& error) {
      const std::string why = error.what();
      if (why != logged && !is_signalled(task->stop.get()))
        host_.log(ISOGATE_LOG_WARN, task->what + ", tried again until it is done: " + why);
      logged = why;
    }
    if (is_signalled(task->stop.get(), wait)) break;
  }
  if (!logged.empty()) host_.log(ISOGATE_LOG_ERROR, task->what + ": not done: " + logged);
  task->work = nullptr;  // and what it owns, before waiters wake
  const std::lock_guard lock(mutex_);
  tasks_.erase(key);
  signal_event(task->ended.get());
  changed_.notify_all();
}

bool Background::is_done(const std::string& key, milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [&] { return !tasks_.contains(key); });
}

void Background::cancel(const std::string& key, const sdk::Call& call) {
  std::shared_ptr<Task> task;
  {
    const std::lock_guard lock(mutex_);
    const auto found = tasks_.find(key);
    if (found == tasks_.end()) return;
    task = found->second;
  }
  signal_event(task->stop.get());
  if (!call.wait(task->ended.get(), POLLIN)) throw sdk::Error(ISOGATE_CANCELLED, "cancelled");
}

}  // namespace isogate::docker
