// From the caller to the runner: what it feeds, the end of a body, signals and the terminal's size.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "talk.h"

namespace isogate::sdk::link {
namespace {

constexpr size_t kPiece = ISOGATE_RUNNER_MAX_FRAME - sizeof(isogate_runner_channel);

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & POLLIN) != 0;
}

}  // namespace

void Talk::post_channel(uint16_t type, uint32_t channel, uint32_t bytes) {
  connection_.post(pending_, [&](std::string& out) {
    FrameWriter(out, type, pending_.stream).add(isogate_runner_channel{channel, bytes});
  });
}

void Talk::feed() {
  if (buffer_.empty()) buffer_.resize(kPiece);
  const ssize_t got = ::read(plan_.feed_fd, buffer_.data(), std::min<uint64_t>(credit_, kPiece));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0 && plan_.has_body) return stop(ISOGATE_IO, "cannot read the body");
  if (got <= 0) return end_feed();
  const auto size = static_cast<size_t>(got);
  credit_ -= size;
  fed_ += size;
  connection_.send(pending_, {}, {}, [&](std::string& out) {
    FrameWriter(out, ISOGATE_RUNNER_DATA, pending_.stream)
        .add(isogate_runner_channel{ISOGATE_RUNNER_STDIN, 0})
        .bytes({buffer_.data(), size});
  });
}

void Talk::end_feed() {
  plan_.feed_fd = -1;
  if (plan_.has_body) return end_body(plan_.complete_fd <= 0 || is_readable(plan_.complete_fd));
  post_channel(ISOGATE_RUNNER_END, ISOGATE_RUNNER_STDIN, 0);
}

void Talk::end_body(bool whole) {
  plan_.body_fd = -1;
  if (!whole) return stop(ISOGATE_CANCELLED, "its sender went away before the body was complete");
  body_ended_ = true;
  post_channel(ISOGATE_RUNNER_END, ISOGATE_RUNNER_STDIN, 0);
}

// The sender says that the body is whole before it closes its end: what has not been said by then never is.
void Talk::look_at_body() {
  if ((watched_[kComplete].revents & POLLIN) != 0) return end_body(true);
  end_body(is_readable(plan_.complete_fd));
}

void Talk::relay_control() {
  std::array<isogate_control, 16> records;
  const ssize_t got = ::read(plan_.control_fd, records.data(), sizeof records);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0 || static_cast<size_t>(got) % sizeof records[0] != 0) {
    plan_.control_fd = -1;
    return;
  }
  connection_.send(pending_, {}, {}, [&](std::string& out) {
    for (size_t i = 0; i < static_cast<size_t>(got) / sizeof records[0]; ++i) {
      const isogate_control& record = records[i];
      if (record.type == ISOGATE_CONTROL_SIGNAL || record.type == ISOGATE_CONTROL_RESIZE)
        FrameWriter(out, ISOGATE_RUNNER_CONTROL, pending_.stream).add(record);
    }
  });
}

}  // namespace isogate::sdk::link
