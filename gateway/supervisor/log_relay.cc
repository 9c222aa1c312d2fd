#include "gateway/supervisor/log_relay.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace isogate::supervisor {
namespace {

constexpr size_t kLongestLine = 64u << 10;
constexpr int kReadsPerTurn = 16;  // a child that never stops talking does not stop the supervisor

Result<Fd> open_file(const std::string& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640));
  if (!file) return os_error("cannot open the log file `" + path + "`", errno);
  return file;
}

}  // namespace

Result<void> LogRelay::open(const std::string& path) {
  path_ = path;
  return path.empty() ? Result<void>() : reopen();
}

Result<void> LogRelay::reopen() {
  if (path_.empty()) return {};
  auto file = open_file(path_);
  if (!file) return file.error();
  file_ = std::move(*file);
  return {};
}

Result<Fd> LogRelay::new_writer() {
  if (path_.empty()) {
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
    write(source->line.substr(0, whole));
    source->line.erase(0, whole);
  }
  const bool open = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  if (!open && !source->line.empty()) write(source->line + "\n");
  return open;
}

void LogRelay::write(const std::string& lines) const {
  for (size_t done = 0; done < lines.size();) {
    const ssize_t n = ::write(file_.get(), lines.data() + done, lines.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a full disk: lines are lost, the gateway goes on
    done += static_cast<size_t>(n);
  }
}

}  // namespace isogate::supervisor
