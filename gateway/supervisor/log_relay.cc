#include "gateway/supervisor/log_relay.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "lib/log.h"
#include "lib/text.h"

namespace isogate::supervisor {
namespace {

constexpr size_t kLongestLine = 64u << 10;
constexpr size_t kLongestQuoted = 2u << 10;  // as a value in the log
constexpr int kReadsPerTurn = 16;            // a child that never stops writing does not stop the supervisor

// The logger limits their length and rate, and escapes them.
void quote(const std::string& backend, std::string_view lines) {
  while (!lines.empty()) {
    const std::string_view line = next_part(lines, '\n');
    if (!line.empty()) log::warn("host_stderr", {{"backend", backend}, {"text", line}});
  }
}

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
  return add("");
}

Result<Fd> LogRelay::new_quoted_writer(const std::string& backend) { return add(backend); }

Result<Fd> LogRelay::add(const std::string& backend) {
  auto pipe = make_pipe(NonBlocking::kRead);
  if (!pipe) return pipe.error();
  sources_.push_back({std::move(pipe->read), "", backend});
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
    pass_on(source, false);
  }
  const bool open = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  if (!open) pass_on(source, true);
  return open;
}

// The whole lines; what has no end, if it is too long or `ended`.
void LogRelay::pass_on(Source* source, bool ended) {
  std::string& text = source->line;
  const bool quoted = !source->backend.empty();
  const bool too_long = text.size() > (quoted ? kLongestQuoted : kLongestLine);
  const size_t end = text.rfind('\n');
  size_t whole = end == std::string::npos ? 0 : end + 1;
  if (ended || (too_long && whole == 0)) whole = text.size();
  if (whole == 0) return;
  if (quoted)
    quote(source->backend, std::string_view(text).substr(0, whole));
  else
    file_->write(text.substr(0, whole) + (ended && text.back() != '\n' ? "\n" : ""));
  text.erase(0, whole);
}

}  // namespace isogate::supervisor
