#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "connection.h"

namespace isogate::sdk::link {

void Connection::receive() {
  const ssize_t got = stream_->read_some(inbox_.get() + filled_, kInbox - filled_);
  const int code = errno;
  if (got < 0 && (code == EAGAIN || code == EINTR)) return;
  if (got < 0) return fail("cannot receive: " + std::generic_category().message(code));
  if (got == 0) return fail(filled_ > 0 ? "it ended in the midst of a frame" : "it ended");
  filled_ += static_cast<size_t>(got);
  try {
    if (const Fault fault = dispatch()) fail(std::string("the runner broke the protocol: ") + fault);
  } catch (const std::bad_alloc&) {
    fail("there is no memory for what the runner says");
  }
}

Fault Connection::dispatch() {
  const std::lock_guard lock(mutex_);
  size_t at = 0;
  Frame frame;
  while (filled_ - at >= sizeof frame.head) {
    std::memcpy(&frame.head, inbox_.get() + at, sizeof frame.head);
    if (const Fault fault = check_head(frame.head)) return fault;
    const size_t whole = sizeof frame.head + frame.head.size;
    if (filled_ - at < whole) break;
    frame.payload = {inbox_.get() + at + sizeof frame.head, frame.head.size};
    if (const Fault fault = hand_out(frame)) return fault;
    at += whole;
  }
  filled_ -= at;
  if (at > 0 && filled_ > 0) std::memmove(inbox_.get(), inbox_.get() + at, filled_);
  return nullptr;
}

Fault Connection::hand_out(const Frame& frame) {
  if (frame.head.type == ISOGATE_RUNNER_HELLO) return hand_out_hello(frame);
  if (!greeted_) return "a frame before its hello";
  if (frame.head.type == ISOGATE_RUNNER_PONG) return hand_out_pong(frame);
  if (frame.head.stream == 0 || frame.head.stream > last_stream_)
    return "a frame of a stream that never began";
  const auto found = calls_.find(frame.head.stream);
  if (frame.head.type == ISOGATE_RUNNER_RESULT && abandoned_.erase(frame.head.stream) > 0) return nullptr;
  if (found == calls_.end() || found->second->answered)
    return frame.head.type == ISOGATE_RUNNER_RESULT ? "a second result of one stream" : nullptr;
  Pending& call = *found->second;
  if (const Fault fault = call.accept(frame)) return fault;
  notify(call);
  return nullptr;
}

Fault Connection::hand_out_hello(const Frame& frame) {
  if (frame.head.stream != 0 || greeter_ == nullptr || greeted_) return "a hello out of place";
  std::memcpy(hello_, frame.payload.data(), sizeof *hello_);
  greeted_ = true;
  greeter_->news = true;
  notify(*greeter_);
  return nullptr;
}

Fault Connection::hand_out_pong(const Frame& frame) {
  uint64_t number = 0;
  std::memcpy(&number, frame.payload.data(), sizeof number);
  if (frame.head.stream != 0 || number > last_ping_ || ++pongs_ > last_ping_)
    return "an answer to a ping that was not sent";
  const auto found = pings_.find(number);
  if (found == pings_.end()) return nullptr;
  found->second->answered = found->second->news = true;
  notify(*found->second);
  return nullptr;
}

// The reader is this thread, and looks for itself.
void Connection::notify(Pending& call) {
  if (&call != reader_) reach(call);
}

}  // namespace isogate::sdk::link
