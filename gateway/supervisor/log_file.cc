#include "gateway/supervisor/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lib/log.h"
#include "lib/thread.h"

namespace isogate::supervisor {
namespace {

uint64_t count_lines(std::string_view text) {
  return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

// How much of it the file took.
size_t write_part(int fd, std::string_view bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  return written;
}

// False also where it cannot be read.
bool ends_within_line(const Fd& file) {
  const Fd reader(::open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  char last = '\n';
  return ::fstat(reader.get(), &info) == 0 && info.st_size > 0 &&
         ::pread(reader.get(), &last, 1, info.st_size - 1) == 1 && last != '\n';
}

}  // namespace

struct LogFile::Shared {
  std::mutex mutex;
  std::condition_variable work, done;
  std::string waiting;
  uint64_t dropped = 0;
  bool writing = false, ending = false;
  std::optional<std::string> to_open;
  std::optional<Result<void>> opened;
  Fd file;            // the thread's, and so are the rest
  bool torn = false;  // it ends within a line

  uint64_t put(std::string lines, uint64_t lost);
};

// With a notice of those that are `lost` already. Returns how many are now: a full disk has no room for all.
uint64_t LogFile::Shared::put(std::string lines, uint64_t lost) {
  if (torn && !write_all(file.get(), "\n")) return count_lines(lines) + lost;
  if (lost > 0) lines += log::format(log::Level::kWarn, "log_lines_dropped", {{"lines", lost}}) + '\n';
  const size_t written = write_part(file.get(), lines);
  torn = written > 0 && written < lines.size() && lines[written - 1] != '\n';
  if (written == lines.size()) return 0;
  const uint64_t now = count_lines(std::string_view(lines).substr(written));
  return lost > 0 ? now - 1 + lost : now;
}

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
  shared_->torn = ends_within_line(*file);
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
      std::string lines = std::exchange(at.waiting, {});
      const uint64_t before = std::exchange(at.dropped, 0);
      at.writing = true;
      lock.unlock();
      const uint64_t lost = at.put(std::move(lines), before);
      lock.lock();
      at.dropped += lost;
      at.writing = false;
      at.done.notify_all();
    } else if (at.to_open) {
      const std::string path = *std::exchange(at.to_open, std::nullopt);
      lock.unlock();
      auto file = log::open_file(path);
      if (file) at.torn = ends_within_line(*file);
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
  std::lock_guard lock(shared_->mutex);
  if (shared_->waiting.size() + lines.size() > kMostWaiting) {
    shared_->dropped += count_lines(lines);
    return;
  }
  shared_->waiting += lines;
  shared_->work.notify_all();
}

bool LogFile::flush() {
  std::unique_lock lock(shared_->mutex);
  return shared_->done.wait_for(lock, kPatience,
                                [this] { return shared_->waiting.empty() && !shared_->writing; });
}

}  // namespace isogate::supervisor
