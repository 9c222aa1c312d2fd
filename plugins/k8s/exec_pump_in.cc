// From the WebSocket to the program's readers.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/k8s/exec_pump.h"
#include "plugins/k8s/exec_status.h"

namespace isogate::k8s {
namespace {

constexpr uint16_t kNormal = 1000, kProtocol = 1002, kTooBig = 1009;

bool try_again(int failure) { return failure == EAGAIN || failure == EWOULDBLOCK || failure == EINTR; }

}  // namespace

bool ExecPump::receive() {
  constexpr int kAtOnce = 16;
  for (int times = 0; times < kAtOnce && !over_ && blocked_ == nullptr; ++times) {
    if (in_begin_ == in_end_) {
      in_begin_ = in_end_ = 0;
      ssize_t got = 0;
      if (!early_.empty()) {
        got = static_cast<ssize_t>(std::min(early_.size(), kBuffer));
        std::memcpy(in_.get(), early_.data(), static_cast<size_t>(got));
        early_.erase(0, static_cast<size_t>(got));
      } else {
        got = transport_->read_some(in_.get(), kBuffer);
      }
      if (got < 0 && try_again(errno)) return false;
      if (got <= 0) {
        lose(got == 0 ? "it ended without a Status"
                      : "cannot receive: " + std::generic_category().message(errno));
        return false;
      }
      in_end_ = static_cast<size_t>(got);
      pinged_.reset();
      heard_ = Clock::now();
    }
    decode();
  }
  return !over_ && blocked_ == nullptr;
}

void ExecPump::decode() {
  while (!over_ && blocked_ == nullptr) {
    const FrameReader::Step step = reader_.next({in_.get() + in_begin_, in_end_ - in_begin_});
    in_begin_ += step.taken;
    if (step.event == FrameReader::Event::kMore) return;
    hear(step);
  }
}

void ExecPump::hear(const FrameReader::Step& step) {
  switch (step.event) {
    case FrameReader::Event::kData: {
      if (step.begins) channel_ = kNoChannel;
      const size_t done = deliver(step.data);
      reader_.took(done);
      in_begin_ += done;
      return;
    }
    case FrameReader::Event::kPing:
      return control(Opcode::kPong, step.data);
    case FrameReader::Event::kPong:
      return;
    case FrameReader::Event::kClose: {
      control(Opcode::kClose, close_payload(kNormal));
      const std::string_view said = step.data.size() > 2 ? step.data.substr(2) : std::string_view();
      return lose("the API server closed it" + (said.empty() ? "" : ": " + printable(said)));
    }
    default:
      return break_off(reader_.why(), reader_.too_big() ? kTooBig : kProtocol);
  }
}

// How much of a message's next bytes is done with.
size_t ExecPump::deliver(std::string_view bytes) {
  size_t named = 0;
  if (channel_ == kNoChannel && !bytes.empty()) {
    channel_ = static_cast<unsigned char>(bytes[0]);
    named = 1;
    bytes.remove_prefix(1);
  }
  switch (channel_) {
    case kNoChannel:
      break;
    case kClose:
      if (!v5_) break_off("it spoke on channel 255", kProtocol);
      break;
    case kStdout:
      return named + give(pair_, bytes);
    case kStderr:
      if (stderr_fd_) return named + give(stderr_fd_, bytes);
      keep_stderr(bytes);
      break;
    case kError:
      keep_status(bytes);
      break;
    default:
      break_off("it spoke on channel " + std::to_string(channel_), kProtocol);
  }
  return named + bytes.size();
}

size_t ExecPump::give(const Fd& to, std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::send(to.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      blocked_ = &to;
      break;
    } else if (errno != EINTR) {
      lose("it was closed on this side");
      break;
    }
  }
  if (result_) linger_ = Clock::now() + kLinger;
  return done;
}

void ExecPump::keep_stderr(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  stderr_ += bytes.substr(0, kStderrKept - stderr_.size());
}

void ExecPump::keep_status(std::string_view bytes) {
  if (bytes.empty() || result_) return;
  if (status_.size() + bytes.size() > kStatusMost) return break_off("its Status is too big", kTooBig);
  status_ += bytes;
  if (status_.find_last_not_of(" \n\r\t") == std::string::npos ||
      status_[status_.find_last_not_of(" \n\r\t")] != '}')
    return;
  result_ = parse_exec_status(status_);
  linger_ = Clock::now() + kLinger;
}

}  // namespace isogate::k8s
