#include "gateway/supervisor/log_file.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "lib/log.h"
#include "lib/thread.h"

namespace isogate::supervisor {

struct LogFile::Shared {
  std::mutex mutex;
  std::condition_variable work, done;
  std::string waiting;
  uint64_t dropped = 0;
  bool writing = false, ending = false;
  std::optional<std::string> to_open;
  std::optional<Result<void>> opened;
  Fd file;  // the thread's
};

LogFile::LogFile() : shared_(std::make_shared<Shared>()) {}

LogFile::~LogFile() {
  (void)flush();
  std::lock_guard lock(shared_->mutex);
  shared_->ending = true;
  shared_->work.notify_all();
}

Result<void> LogFile::open(const std::string& path) {
  auto file = log::open_file(path);
  if (!file) return file.error();
  path_ = path;
  use(std::move(*file));
  return {};
}

void LogFile::use(Fd file) {
  shared_->file = std::move(file);
  start_thread([shared = shared_] { serve(shared); }).detach();
}

void LogFile::serve(std::shared_ptr<Shared> shared) {
  Shared& at = *shared;
  std::unique_lock lock(at.mutex);
  while (!at.ending || !at.waiting.empty()) {
    if (!at.waiting.empty()) {
      const std::string lines = std::exchange(at.waiting, {});
      at.writing = true;
      lock.unlock();
      (void)write_all(at.file.get(), lines);  // a full disk: lines are lost, the gateway goes on
      lock.lock();
      at.writing = false;
      at.done.notify_all();
    } else if (at.to_open) {
      const std::string path = *std::exchange(at.to_open, std::nullopt);
      lock.unlock();
      auto file = log::open_file(path);
      lock.lock();
      if (file) at.file = std::move(*file);
      at.opened = file ? Result<void>() : Result<void>(file.error());
      at.done.notify_all();
    } else {
      at.work.wait(lock);
    }
  }
}

Result<void> LogFile::reopen() {
  std::unique_lock lock(shared_->mutex);
  shared_->opened.reset();
  shared_->to_open = path_;
  shared_->work.notify_all();
  if (shared_->done.wait_for(lock, kPatience, [this] { return shared_->opened.has_value(); }))
    return *shared_->opened;
  return os_error("cannot reopen the log file `" + path_ + "`: its file system does not answer", ETIMEDOUT);
}

void LogFile::write(std::string lines) {
  const auto count = static_cast<uint64_t>(std::count(lines.begin(), lines.end(), '\n'));
  std::lock_guard lock(shared_->mutex);
  if (shared_->waiting.size() + lines.size() > kMostWaiting) {
    shared_->dropped += count;
    return;
  }
  if (const uint64_t dropped = std::exchange(shared_->dropped, 0); dropped > 0)
    shared_->waiting += log::format(log::Level::kWarn, "log_lines_dropped", {{"lines", dropped}}) + '\n';
  shared_->waiting += lines;
  shared_->work.notify_all();
}

bool LogFile::flush() {
  std::unique_lock lock(shared_->mutex);
  return shared_->done.wait_for(lock, kPatience,
                                [this] { return shared_->waiting.empty() && !shared_->writing; });
}

}  // namespace isogate::supervisor
