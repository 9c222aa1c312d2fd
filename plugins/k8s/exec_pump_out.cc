// From the program's writer to the WebSocket.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/k8s/exec_pump.h"

namespace isogate::k8s {

bool ExecPump::send() {
  constexpr int kAtOnce = 16;
  for (int times = 0; times < kAtOnce; ++times) {
    if (out_begin_ == out_end_ && !fill_frame()) return false;
    const ssize_t n = transport_->write_some(out_.get() + out_begin_, out_end_ - out_begin_);
    if (n > 0) {
      out_begin_ += static_cast<size_t>(n);
      room_ = true;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      room_ = false;
      return false;
    } else {
      // What the other side said before it went can still be read: its end is noticed there.
      out_begin_ = out_end_ = 0;
      controls_.clear();
      stdin_open_ = false;
      return false;
    }
  }
  return true;
}

bool ExecPump::fill_frame() {
  out_begin_ = out_end_ = 0;
  if (!controls_.empty()) {
    const size_t size = std::min(controls_.size(), kBuffer);
    std::memcpy(out_.get(), controls_.data(), size);
    controls_.erase(0, size);
    out_end_ = size;
  } else if (stdin_open_ && (closed_here_ || (!over_ && !result_))) {
    take_stdin();
  }
  return out_begin_ != out_end_;
}

// One message: the channel's byte, then what there is. The head is put right before it.
void ExecPump::take_stdin() {
  char* const payload = out_.get() + kHeadMost;
  const ssize_t got = ::recv(pair_.get(), payload + 1, kBuffer, 0);
  if (got < 0) return;
  size_t size = 1 + static_cast<size_t>(got);
  payload[0] = 0;
  if (got == 0) {
    stdin_open_ = false;
    if (!v5_) return;
    constexpr char kCloseStdin[] = {'\xff', 0};
    std::memcpy(payload, kCloseStdin, sizeof kCloseStdin);
    size = sizeof kCloseStdin;
  }
  const Mask mask = new_mask();
  char head[kHeadMost];
  const size_t head_size = write_head(head, Opcode::kBinary, size, mask);
  std::memcpy(payload - head_size, head, head_size);
  apply_mask(payload, size, mask);
  out_begin_ = kHeadMost - head_size;
  out_end_ = kHeadMost + size;
}

}  // namespace isogate::k8s
