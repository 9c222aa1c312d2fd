#include "runner/agent/calls/flow.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "sdk/runner_link/wire.h"

namespace isogate::agent {
namespace {

constexpr size_t kMostBytes = ISOGATE_RUNNER_MAX_FRAME - sizeof(isogate_runner_channel);

}  // namespace

uint64_t key_of(uint32_t stream, uint32_t channel) { return uint64_t{stream} << 2 | channel; }

bool Credit::add(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return credit_.add(bytes);
}

uint64_t Credit::take(uint64_t most) {
  const std::lock_guard lock(mutex_);
  return credit_.take(most);
}

uint64_t Credit::wait(uint64_t least, uint64_t most) {
  std::unique_lock lock(mutex_);
  while (credit_.left() < least) {
    if (!giving_up_) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, until_) == std::cv_status::timeout && credit_.left() < least) {
      return 0;
    }
  }
  return credit_.take(most);
}

void Credit::give_back(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  credit_.give_back(bytes);
}

void Credit::give_up(std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + patience;
  until_ = giving_up_ ? std::min(until_, until) : until;
  giving_up_ = true;
  changed_.notify_all();
}

Result<Fd> Outlet::open() {
  auto pipe = make_pipe(NonBlocking::kRead);
  if (!pipe) return pipe.error();
  const std::lock_guard lock(state_);
  pipe_ = std::move(pipe->read);
  opened_ = true;
  if (!wire_.poller.arm(pipe_.get(), key_of(stream_, channel_), false))
    return os_error("cannot watch a pipe", ENOMEM);
  return std::move(pipe->write);
}

// moving_ is held.
ssize_t Outlet::move(std::span<char> buffer, uint64_t most) {
  ssize_t got = 0;
  do {
    got = ::read(pipe_.get(), buffer.data(), std::min<uint64_t>(buffer.size(), most));
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) {
    credit_.give_back(most);
    return 0;
  }
  if (got <= 0) return -1;
  const auto size = static_cast<size_t>(got);
  credit_.give_back(most - size);
  const isogate_runner_channel channel = {channel_, 0};
  const std::string_view bytes(buffer.data(), size);
  return wire_.connection.send(ISOGATE_RUNNER_DATA, stream_, link::bytes_of(channel), bytes) ? got : -1;
}

void Outlet::pump(std::span<char> buffer) {
  const std::unique_lock one(moving_, std::try_to_lock);
  if (!one) return;
  uint64_t allowed = 0;
  {
    const std::lock_guard lock(state_);
    if (!pipe_ || taken_) return;
    allowed = credit_.take(std::min(buffer.size(), kMostBytes));
    starved_ = allowed == 0;
  }
  if (allowed == 0) return;
  const ssize_t moved = move(buffer, allowed);
  {
    const std::lock_guard lock(state_);
    if (taken_) return;
    if (moved >= 0) {
      wire_.poller.arm(pipe_.get(), key_of(stream_, channel_), false);
      return;
    }
    wire_.poller.forget(pipe_.get());
    pipe_.reset();
  }
  send_end();
}

void Outlet::announce_end() {
  const std::lock_guard lock(state_);
  announces_ = true;
}

// moving_ is held.
void Outlet::send_end() {
  {
    const std::lock_guard lock(state_);
    if (!std::exchange(announces_, false)) return;
  }
  wire_.connection.send(ISOGATE_RUNNER_END, stream_, link::bytes_of(isogate_runner_channel{channel_, 0}));
}

bool Outlet::add_credit(uint32_t bytes) {
  const std::lock_guard lock(state_);
  if (!opened_) return false;
  const bool sound = credit_.add(bytes);
  if (starved_ && pipe_ && !taken_) wire_.poller.arm(pipe_.get(), key_of(stream_, channel_), false);
  starved_ = false;
  return sound;
}

void Outlet::drain() {
  {
    const std::lock_guard lock(state_);
    taken_ = true;
  }
  const std::lock_guard one(moving_);
  if (!pipe_) return;
  wire_.poller.forget(pipe_.get());
  int left = 0;
  if (::ioctl(pipe_.get(), FIONREAD, &left) != 0) left = 0;
  std::vector<char> buffer(std::min(static_cast<size_t>(left), kMostBytes));
  while (left > 0 && !wire_.connection.stopped()) {
    const uint64_t allowed = credit_.wait(1, std::min(static_cast<size_t>(left), buffer.size()));
    const ssize_t moved = allowed > 0 ? move(buffer, allowed) : 0;
    if (moved <= 0) break;
    left -= static_cast<int>(moved);
  }
  {
    const std::lock_guard lock(state_);
    pipe_.reset();
  }
  if (left == 0) send_end();
}

Result<Fd> Inlet::open() {
  auto pipe = make_pipe(NonBlocking::kWrite);
  if (!pipe) return pipe.error();
  const std::lock_guard lock(state_);
  pipe_ = std::move(pipe->write);
  opened_ = true;
  return std::move(pipe->read);
}

Result<int> Inlet::completion() {
  auto event = make_event();
  if (!event) return event.error();
  const std::lock_guard lock(state_);
  complete_ = std::move(*event);
  return complete_.get();
}

// state_ is held in the next three.
size_t Inlet::write_some(std::string_view bytes) {
  const ssize_t size = ::write(pipe_.get(), bytes.data(), bytes.size());
  if (size >= 0) return static_cast<size_t>(size);
  if (errno == EAGAIN || errno == EINTR) return 0;
  wire_.poller.forget(pipe_.get());
  pipe_.reset();  // nothing reads any more: the rest is read and discarded
  return bytes.size();
}

void Inlet::write_kept() {
  const size_t taken = pipe_ ? write_some(std::string_view(kept_).substr(written_)) : kept_.size() - written_;
  written_ += taken;
  window_.consume(taken);
  if (pipe_ && written_ < kept_.size()) {
    if (written_ >= link::kCreditStep) kept_.erase(0, std::exchange(written_, 0));
    wire_.poller.arm(pipe_.get(), key_of(stream_, ISOGATE_RUNNER_STDIN), true);
    return;
  }
  kept_.clear();
  written_ = 0;
}

void Inlet::finish() {
  if (complete_) signal_event(complete_.get());
  if (pipe_) wire_.poller.forget(pipe_.get());
  pipe_.reset();
}

// The thread that reads the connection must not wait for a client that does not read: the main thread returns
// credit.
bool Inlet::put(std::string_view bytes) {
  const std::lock_guard lock(state_);
  if (!opened_ || ended_ || !window_.accept(bytes.size())) return false;
  size_t taken = bytes.size();
  if (pipe_) taken = kept_.empty() ? write_some(bytes) : 0;
  kept_.append(bytes.substr(taken));
  const uint64_t key = key_of(stream_, ISOGATE_RUNNER_STDIN);
  if (!kept_.empty()) wire_.poller.arm(pipe_.get(), key, true);
  window_.consume(taken);
  if (window_.is_due()) wire_.poller.post(key);
  return true;
}

bool Inlet::end() {
  const std::lock_guard lock(state_);
  if ((!opened_ && !complete_) || ended_) return false;
  ended_ = true;
  if (kept_.empty()) finish();
  return true;
}

void Inlet::pump() {
  isogate_runner_channel granted = {ISOGATE_RUNNER_STDIN, 0};
  {
    const std::lock_guard lock(state_);
    if (!kept_.empty()) write_kept();
    granted.bytes = window_.grant(kept_.empty());
    if (kept_.empty() && ended_) finish();
  }
  if (granted.bytes > 0) wire_.connection.send(ISOGATE_RUNNER_CREDIT, stream_, link::bytes_of(granted));
}

void Inlet::close() {
  const std::lock_guard lock(state_);
  if (pipe_) wire_.poller.forget(pipe_.get());
  pipe_.reset();
  kept_.clear();
  written_ = 0;
}

}  // namespace isogate::agent
