#include "lib/log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>

#include "lib/log_line.h"

#define SPDLOG_NO_TLS
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

namespace isogate::log {

std::atomic<int> detail::threshold{static_cast<int>(Level::kInfo)};

namespace {

constexpr size_t kMaxEvent = 64;
constexpr uint32_t kPerSecond = 100;
constexpr int kStallMs = 200;

class DescriptorSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void use(Fd fd) {
    std::lock_guard lock(mutex_);
    send_gathered();
    out_ = std::move(fd);
    stalled_ = false;
  }

 protected:
  // A record has level debug, any other line level info.
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string_view line(message.payload.data(), message.payload.size());
    if (message.level != spdlog::level::debug) {
      send_gathered();
      return send(std::string(line), 1);
    }
    if (gathered_.size() + line.size() + kLineReserve > PIPE_BUF) send_gathered();
    if (gathered_lines_++ > 0) gathered_ += '\n';
    gathered_ += line;
  }
  void flush_() override { send_gathered(); }

 private:
  void send_gathered() {
    if (gathered_lines_ > 0) send(std::exchange(gathered_, {}), std::exchange(gathered_lines_, 0));
  }

  void send(std::string lines, uint64_t count) {
    if (dropped_ > 0) lines.insert(lines.size() - 1, ",\"dropped_before\":" + std::to_string(dropped_));
    lines += '\n';
    stalled_ = !put(lines);
    dropped_ = stalled_ ? dropped_ + count : 0;
  }

  bool put(const std::string& line) {
    int fd = out_ ? out_.get() : STDERR_FILENO;
    pollfd ready{fd, POLLOUT, 0};
    if (::poll(&ready, 1, stalled_ ? 0 : kStallMs) != 1 || (ready.revents & POLLOUT) == 0) return false;
    ssize_t wrote = 0;
    do wrote = ::write(fd, line.data(), line.size());
    while (wrote < 0 && errno == EINTR);
    return wrote >= 0;
  }

  Fd out_;
  bool stalled_ = false;
  uint64_t dropped_ = 0, gathered_lines_ = 0;
  std::string gathered_;
};

struct Slot {
  time_t second = 0;
  uint32_t lines = 0, suppressed = 0;
  std::string event;
};

struct State {
  std::mutex mutex;
  std::string process = "isogate";
  std::array<Slot, 256> slots;  // more than there are events
  uint32_t suppressing = 0;     // slots that hold lines back
  std::shared_ptr<DescriptorSink> sink = std::make_shared<DescriptorSink>();
  spdlog::logger logger{"isogate", sink};

  State() {
    logger.set_level(spdlog::level::trace);
    logger.set_error_handler([](const std::string&) {});
  }
};

State& state() {
  static auto* one = new State;  // outlives every thread that still logs
  return *one;
}

void put(State& at, const std::string& line) {
  at.logger.log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
}

void report_suppressed(State& at, Slot& slot) {
  std::string event = slot.event;
  put(at,
      line_of(at.process, Level::kWarn, "log_lines_suppressed", {{"of", event}, {"lines", slot.suppressed}}));
  slot.suppressed = 0;
  --at.suppressing;
}

void sweep(State& at, time_t now) {
  if (at.suppressing == 0) return;
  for (Slot& slot : at.slots)
    if (slot.suppressed > 0 && slot.second != now) report_suppressed(at, slot);
}

// Its own in this second: what floods the log hides no other event. Where all are taken, another's.
Slot& slot_of(State& at, std::string_view event, time_t now) {
  const size_t first = std::hash<std::string_view>()(event) % at.slots.size();
  for (size_t i = 0; i < at.slots.size(); ++i) {
    Slot& slot = at.slots[(first + i) % at.slots.size()];
    if (slot.second != now || slot.event == event) return slot;
  }
  return at.slots[first];
}

bool admit(State& at, std::string_view event, time_t now) {
  event = event.substr(0, kMaxEvent);
  Slot& slot = slot_of(at, event, now);
  if (slot.second != now) slot = Slot{now, 0, 0, std::string(event)};
  if (++slot.lines <= kPerSecond) return true;
  if (slot.suppressed++ == 0) ++at.suppressing;
  return false;
}

time_t monotonic_second() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec + 1;  // never the 0 of an unused slot
}

Result<int> level_of(const std::string& name) {
  auto found = std::find(std::begin(kLevels), std::end(kLevels), name);
  if (found == std::end(kLevels))
    return invalid("log level `" + name + "`: expected debug, info, warn or error");
  return static_cast<int>(found - std::begin(kLevels));
}

}  // namespace

void detail::write(Level level, std::string_view event, Fields fields) noexcept {
  try {
    State& at = state();
    std::lock_guard lock(at.mutex);
    time_t now = monotonic_second();
    sweep(at, now);
    if (admit(at, event, now)) put(at, line_of(at.process, level, event, fields));
  } catch (...) {  // out of memory: the line is lost
  }
}

void record(std::string_view event, Fields fields) noexcept {
  try {
    State& at = state();
    std::lock_guard lock(at.mutex);
    const std::string line = line_of(at.process, Level::kInfo, event, fields);
    at.logger.log(spdlog::level::debug, spdlog::string_view_t(line.data(), line.size()));
  } catch (...) {
  }
}

void flush_records() noexcept {
  try {
    state().logger.flush();
  } catch (...) {
  }
}

void flush() noexcept {
  try {
    State& at = state();
    std::lock_guard lock(at.mutex);
    sweep(at, 0);
    at.logger.flush();
  } catch (...) {
  }
}

Result<Fd> open_file(const std::string& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK,
               0640));
  const bool nobody_reads = !fd && errno == ENXIO;  // a FIFO or a socket
  if (!fd && !nobody_reads) return os_error("cannot open the log file `" + path + "`", errno);
  struct stat info {};
  if (nobody_reads || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return invalid("cannot log to `" + path + "`: not a regular file");
  return fd;
}

Result<void> start(std::string process, const std::string& level, const std::string& file) {
  if (file.empty()) return start(std::move(process), level, Fd());
  auto out = open_file(file);
  if (!out) return out.error();
  return start(std::move(process), level, std::move(*out));
}

Result<void> start(std::string process, const std::string& level, Fd out) {
  auto threshold = level_of(level);
  if (!threshold) return threshold.error();
  State& at = state();
  std::lock_guard lock(at.mutex);
  at.process = std::move(process);
  at.sink->use(std::move(out));
  detail::threshold.store(*threshold, std::memory_order_relaxed);
  return {};
}

std::string format(Level level, std::string_view event, Fields fields) {
  State& at = state();
  std::string process;
  {
    std::lock_guard lock(at.mutex);
    process = at.process;
  }
  return line_of(process, level, event, fields);
}

}  // namespace isogate::log
