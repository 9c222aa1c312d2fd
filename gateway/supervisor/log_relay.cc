#include "gateway/supervisor/log_relay.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace isogate::supervisor {
namespace {

constexpr size_t kLongestLine = 64u << 10;
constexpr int kReadsPerTurn = 16;  // a child that never stops writing does not stop the supervisor

}  // namespace

Result<void> LogRelay::open(const std::string& path) {
  if (path.empty()) return {};
  file_.emplace();
  auto opened = file_->open(path);
  if (!opened) file_.reset();
  return opened;
}

void LogRelay::use(Fd file) { file_.emplace().use(std::move(file)); }

Result<void> LogRelay::reopen() { return file_ ? file_->reopen() : Result<void>(); }

Result<Fd> LogRelay::new_writer() {
  if (!file_) {
    Fd copy(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!copy) return os_error("cannot pass on stderr", errno);
    return copy;
  }
  auto pipe = make_pipe();
  if (!pipe) return pipe.error();
  if (::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK) != 0) return os_error("cannot set up a log pipe", errno);
  sources_.push_back({std::move(pipe->read), ""});
  return std::move(pipe->write);
}

void LogRelay::drain() {
  std::erase_if(sources_, [this](Source& source) { return !take(&source); });
}

// False at the end of the pipe.
bool LogRelay::take(Source* source) {
  std::array<char, 65536> buffer;
  ssize_t n = 0;
  for (int turn = 0;
       turn < kReadsPerTurn && (n = ::read(source->pipe.get(), buffer.data(), buffer.size())) > 0; ++turn) {
    source->line.append(buffer.data(), static_cast<size_t>(n));
    const size_t end = source->line.rfind('\n');
    const bool too_long = source->line.size() > kLongestLine;
    if (end == std::string::npos && !too_long) continue;
    const size_t whole = end == std::string::npos ? source->line.size() : end + 1;
    file_->write(source->line.substr(0, whole));
    source->line.erase(0, whole);
  }
  const bool open = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  if (!open && !source->line.empty()) file_->write(source->line + "\n");
  return open;
}

}  // namespace isogate::supervisor
