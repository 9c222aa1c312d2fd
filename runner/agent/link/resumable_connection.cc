#include "runner/agent/link/resumable_connection.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "sdk/runner_link/wire.h"

namespace isogate::agent {
namespace {

constexpr size_t kMostKept = 8 << 20;  // also of frames that do not wait: results, replies

bool is_bulk(uint16_t type) { return type == ISOGATE_RUNNER_DATA || type == ISOGATE_RUNNER_ENTRIES; }

}  // namespace

Result<std::unique_ptr<ResumableConnection>> ResumableConnection::make(const isogate_runner_resumed& first,
                                                                       std::chrono::seconds grace) {
  std::unique_ptr<ResumableConnection> made(new ResumableConnection);
  auto wake = make_event();
  if (!wake) return wake.error();
  made->wake_ = std::move(*wake);
  made->answer_ = first;
  made->grace_ = grace;
  return made;
}

bool ResumableConnection::attach(Stream stream, uint64_t received) {
  const std::lock_guard lock(mutex_);
  if (over_ || !exchange_.can_resume(received)) return false;
  lose();
  exchange_.resume(received);
  changed_.notify_all();
  answer_.received = exchange_.received();
  const auto answer = sdk::link::bytes_of(answer_);
  signal_event(wake_.get());
  // Nothing was written to it before, so it accepts the whole reply.
  if (::write(stream.out.get(), answer.data(), answer.size()) != static_cast<ssize_t>(answer.size()))
    return true;
  stream_ = std::move(stream);
  ++streams_;
  flush();
  return true;
}

size_t ResumableConnection::read(std::span<char> room) {
  while (wait()) {
    const std::lock_guard lock(mutex_);
    flush();
    const size_t size = receive(room);
    flush();
    if (size > 0) return size;
  }
  return 0;
}

// Until there may be something to do.
bool ResumableConnection::wait() {
  std::array<pollfd, 4> slots{{{wake_.get(), POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLOUT, 0}, {-1, POLLIN, 0}}};
  uint64_t streams = 0;
  int patience = -1;
  {
    const std::lock_guard lock(mutex_);
    if (!stream_.in) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(lost_at_ + grace_ - Clock::now());
      if (left.count() <= 0) end();
      patience = static_cast<int>(left.count());
    }
    if (over_) return false;
    streams = streams_;
    slots[1].fd = stream_.in.get();
    if (exchange_.has_more()) slots[2].fd = stream_.out.get();
    slots[3].fd = stream_.socket.get();
  }
  ::poll(slots.data(), slots.size(), patience);
  const std::lock_guard lock(mutex_);
  clear_event(wake_.get());
  if (slots[3].revents != 0 && slots[1].revents == 0 && streams == streams_) lose();
  return !over_;
}

// 0: nothing now.
size_t ResumableConnection::receive(std::span<char> room) {
  while (stream_.in && !over_) {
    const ssize_t got = ::read(stream_.in.get(), room.data(), room.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) {
      lose();
      return 0;
    }
    const size_t size = exchange_.receive(room.first(static_cast<size_t>(got)));
    if (exchange_.fault() != nullptr || exchange_.is_over()) end();
    changed_.notify_all();
    if (size > 0 && !over_) return size;
  }
  return 0;
}

bool ResumableConnection::send(uint16_t type, uint32_t stream, std::string_view body,
                               std::string_view bytes) {
  const isogate_runner_frame head = {static_cast<uint32_t>(body.size() + bytes.size()), type, 0, stream};
  const size_t whole = sizeof head + head.size;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return over_ || !is_bulk(type) || exchange_.room() >= whole; });
  if (exchange_.kept() + whole > kMostKept) end();
  if (over_) return false;
  exchange_.add(sdk::link::bytes_of(head));
  exchange_.add(body);
  exchange_.add(bytes);
  flush();
  if (stream_.in && exchange_.has_more()) signal_event(wake_.get());
  return true;
}

void ResumableConnection::flush() {
  while (stream_.out) {
    const auto bytes = exchange_.next();
    if (bytes.empty()) return;
    const ssize_t sent = ::write(stream_.out.get(), bytes.data(), bytes.size());
    if (sent > 0) {
      exchange_.took(static_cast<size_t>(sent));
    } else if (errno != EINTR) {
      if (errno != EAGAIN) lose();
      return;
    }
  }
}

void ResumableConnection::lose() {
  if (!stream_.in) return;
  stream_ = {};
  lost_at_ = Clock::now();
  signal_event(wake_.get());
}

void ResumableConnection::end() {
  if (over_) return;
  over_ = true;
  exchange_.add_goodbye();
  flush();
  stream_ = {};
  changed_.notify_all();
  signal_event(wake_.get());
}

void ResumableConnection::stop() {
  const std::lock_guard lock(mutex_);
  end();
}

}  // namespace isogate::agent
