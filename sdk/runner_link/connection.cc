#include "connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "exchange.h"

namespace isogate::sdk::link {

int milliseconds_to(Clock::time_point until) {
  if (until == kForEver) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

Connection::Connection(std::unique_ptr<RunnerStream> stream, Patience patience)
    : stream_(std::move(stream)), patience_(patience) {}

Connection::~Connection() { stream_->shutdown(); }

void Connection::wait(Pending& call, Awaits awaits, std::span<pollfd> also, Clock::time_point until) {
  for (pollfd& one : also) one.revents = 0;
  bool reads = false;
  if (!prepare(call, awaits, reads)) {
    ::poll(also.data(), also.size(), 0);  // so that a flood of frames hides no cancellation
    return;
  }
  std::array<pollfd, 2 + kMostWatched> fds;
  fds[0] = {reads ? stream_->fd() : -1, POLLIN, 0};
  fds[1] = {call.waker, POLLIN, 0};
  std::copy(also.begin(), also.end(), fds.begin() + 2);
  const bool buffered = reads && stream_->has_buffered();
  const int ready = ::poll(fds.data(), 2 + also.size(), buffered ? 0 : milliseconds_to(until));
  const int code = errno;
  if (!reads) unlist(call);
  if (ready < 0 && code != EINTR) fail("cannot wait: " + std::generic_category().message(code));
  if (ready > 0) std::copy_n(fds.begin() + 2, also.size(), also.begin());
  if (reads && (buffered || (ready > 0 && fds[0].revents != 0))) receive();
}

bool Connection::prepare(Pending& call, Awaits awaits, bool& reads) {
  const std::lock_guard lock(mutex_);
  if (dead_ || (awaits == Awaits::kUpdate && call.updated) || (awaits == Awaits::kTurn && writer_ == &call))
    return false;
  call.calm();
  if (reader_ == nullptr) reader_ = &call;
  reads = reader_ == &call;
  if (reads) return true;
  call.place = waiting_.size();
  waiting_.push_back(&call);
  return true;
}

void Connection::unlist(Pending& call) {
  const std::lock_guard lock(mutex_);
  if (call.place == Pending::kNowhere) return;
  waiting_[call.place] = waiting_.back();
  waiting_[call.place]->place = call.place;
  waiting_.pop_back();
  call.place = Pending::kNowhere;
}

void Connection::appoint() {
  reader_ = nullptr;
  if (waiting_.empty()) return;
  reader_ = waiting_.back();
  waiting_.pop_back();
  reader_->place = Pending::kNowhere;
  reader_->wake();
}

void Connection::reach(Pending& call) {
  if (&call == reader_ || call.place != Pending::kNowhere) call.wake();
}

void Connection::step_down(Pending& call) {
  const std::lock_guard lock(mutex_);
  if (reader_ == &call) appoint();
}

void Connection::leave(Pending& call) {
  const std::lock_guard lock(mutex_);
  if (call.stream != 0) calls_.erase(call.stream);
  if (reader_ == &call) appoint();
  call.calm();
}

void Connection::abandon(const Pending& call) {
  const std::lock_guard lock(mutex_);
  if (calls_.contains(call.stream) && !call.answered) abandoned_.insert(call.stream);
}

uint32_t Connection::begin(Pending& call) {
  const std::lock_guard lock(mutex_);
  if (last_stream_ == UINT32_MAX) throw Error(ISOGATE_UNAVAILABLE, "the connection has no stream left");
  call.stream = ++last_stream_;
  calls_.emplace(call.stream, &call);
  return call.stream;
}

bool Connection::is_there() {
  bool gone = false;
  {
    const std::lock_guard lock(mutex_);
    gone = !dead_ && calls_.empty() && writer_ == nullptr && stream_->hung_up();
  }
  if (gone) fail("it ended");
  return alive();
}

std::string Connection::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

void Connection::fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (dead_) return;
    dead_.store(true, std::memory_order_release);
    why_ = why;
    for (Pending* call : waiting_) call->wake();
    if (reader_ != nullptr) reader_->wake();
  }
  stream_->shutdown();
}

void Connection::refuse(const char* why) {
  const std::string what = std::string("the runner's answer is invalid: ") + why;
  fail(what);
  throw Error(ISOGATE_IO, what);
}

namespace {

[[noreturn]] void unfit(const std::string& why) {
  throw Error(ISOGATE_UNAVAILABLE, "cannot use the runner: " + why);
}

void check_hello(const isogate_runner_hello& hello) {
  if (hello.magic != ISOGATE_RUNNER_MAGIC) unfit("what answers is no isogate-runner");
  if (hello.major != ISOGATE_RUNNER_MAJOR)
    unfit("it speaks version " + std::to_string(hello.major) + " of the protocol, this gateway version " +
          std::to_string(ISOGATE_RUNNER_MAJOR));
  if (hello.reserved != 0) unfit("its hello has reserved bits");
}

}  // namespace

void Connection::greet(const Bound& bound, isogate_runner_hello& hello) {
  Pending greeter;
  greeter_ = &greeter;
  hello_ = &hello;
  const isogate_runner_hello own = make_hello();
  send(greeter, bound, {}, [&](std::string& out) { FrameWriter(out, ISOGATE_RUNNER_HELLO, 0).add(own); });
  std::array<pollfd, 1> watched{{{bound.cancel_fd, POLLIN, 0}}};
  while (alive() && !greeter.updated && watched[0].revents == 0 && Clock::now() < bound.until)
    wait(greeter, Awaits::kUpdate, watched, bound.until);
  leave(greeter);
  greeter_ = nullptr;
  if (!greeter.updated && watched[0].revents != 0) throw Error(ISOGATE_CANCELLED, "cancelled");
  if (!greeter.updated) unfit(alive() ? "it does not answer" : why());
  check_hello(hello);
}

bool Connection::ping(Clock::time_point until) {
  Pending call;
  uint64_t number = 0;
  const bool sent = send(call, {.until = until}, {}, [&](std::string& out) {
    const std::lock_guard lock(mutex_);
    number = ++last_ping_;
    pings_.emplace(number, &call);
    FrameWriter(out, ISOGATE_RUNNER_PING, 0).add(number);
  });
  bool answered = false;
  while (sent && !answered) {
    wait(call, Awaits::kUpdate, {}, until);
    {
      const std::lock_guard lock(mutex_);
      answered = call.answered;
    }
    if (!alive() || Clock::now() >= until) break;
  }
  {
    const std::lock_guard lock(mutex_);
    pings_.erase(number);
  }
  leave(call);
  return answered;
}

void Connection::receive() try {
  const std::span<char> room = decoder_.room();
  const ssize_t got = stream_->read_some(room.data(), room.size());
  const int code = errno;
  if (got < 0 && (code == EAGAIN || code == EINTR)) return;
  if (got < 0) return fail("cannot receive: " + std::generic_category().message(code));
  if (got == 0) return fail(decoder_.is_within_frame() ? "it ended in the midst of a frame" : "it ended");
  decoder_.took(static_cast<size_t>(got));
  if (const std::string fault = dispatch(); !fault.empty()) fail("the runner broke the protocol: " + fault);
} catch (const std::bad_alloc&) {
  fail("there is no memory for the runner's frames");
}

std::string Connection::dispatch() {
  const std::lock_guard lock(mutex_);
  for (Frame frame;;) {
    switch (decoder_.next(frame)) {
      case Decoder::Next::kMore:
        return {};
      case Decoder::Next::kFault:
        return decoder_.fault();
      case Decoder::Next::kFrame:
        if (const Fault fault = hand_out(frame)) return fault;
    }
  }
}

Fault Connection::hand_out(const Frame& frame) {
  if (frame.head.type == ISOGATE_RUNNER_HELLO) return hand_out_hello(frame);
  if (!greeted_) return "a frame before its hello";
  if (frame.head.type == ISOGATE_RUNNER_PONG) return hand_out_pong(frame);
  if (frame.head.stream > last_stream_) return "a frame of a stream that never began";
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
  if (greeter_ == nullptr || greeted_) return "a hello out of place";
  std::memcpy(hello_, frame.payload.data(), sizeof *hello_);
  greeted_ = true;
  greeter_->updated = true;
  notify(*greeter_);
  return nullptr;
}

Fault Connection::hand_out_pong(const Frame& frame) {
  uint64_t number = 0;
  std::memcpy(&number, frame.payload.data(), sizeof number);
  if (number > last_ping_ || ++pongs_ > last_ping_) return "an answer to a ping that was not sent";
  const auto found = pings_.find(number);
  if (found == pings_.end()) return nullptr;
  found->second->answered = found->second->updated = true;
  notify(*found->second);
  return nullptr;
}

// The reader is this thread, and looks for itself.
void Connection::notify(Pending& call) {
  if (&call != reader_) reach(call);
}

namespace {

constexpr size_t kKept = 128 << 10;  // of the buffer, between two frames
constexpr const char* kTakesNothing = "it takes no more bytes";

bool is_end_of_stream(int code) {
  return code == EPIPE || code == ECONNRESET || code == ENOTCONN || code == ESHUTDOWN;
}

bool is_past(Clock::time_point until) { return until != kForEver && Clock::now() >= until; }

}  // namespace

bool Connection::has_turn(Pending& call, bool give_up) {
  const std::lock_guard lock(mutex_);
  if (writer_ == &call) return true;
  if (give_up) std::erase(writers_, &call);
  return false;
}

bool Connection::take_turn(Pending& call, const Bound& bound) {
  {
    const std::lock_guard lock(mutex_);
    if (dead_) return false;
    if (writer_ == nullptr) {
      writer_ = &call;
      return true;
    }
    writers_.push_back(&call);
  }
  std::array<pollfd, 1> watched{{{bound.cancel_fd, POLLIN, 0}}};
  for (;;) {
    wait(call, Awaits::kTurn, watched, bound.until);
    const bool give_up = !alive() || watched[0].revents != 0 || is_past(bound.until);
    if (has_turn(call, give_up)) return true;
    if (give_up) return false;
  }
}

void Connection::pass_turn(Pending& call, const Bound& bound) {
  for (;;) {
    if (outbox_.capacity() > kKept) outbox_ = {};
    outbox_.clear();
    {
      const std::lock_guard lock(mutex_);
      if (posted_.empty() || dead_) return hand_on_turn();
      outbox_.swap(posted_);
    }
    flush(call, bound, {}, false);
  }
}

void Connection::hand_on_turn() {
  writer_ = nullptr;
  if (writers_.empty()) return;
  writer_ = writers_.front();
  writers_.pop_front();
  reach(*writer_);
}

bool Connection::flush(Pending& call, Bound bound, std::span<const int> fds, bool may_give_up) {
  auto whole_by = kForEver;
  for (size_t done = 0; done < outbox_.size();) {
    if (!alive()) return false;
    const char* from = outbox_.data() + done;
    const size_t size = std::min(outbox_.size() - done, may_give_up ? SIZE_MAX : kShort);
    const bool attach = done == 0 && !fds.empty();
    const ssize_t sent =
        attach ? stream_->write_with(from, size, fds.data(), fds.size()) : stream_->write_some(from, size);
    const int code = errno;
    if (sent > 0) {
      done += static_cast<size_t>(sent);
    } else if (sent < 0 && code == EAGAIN) {
      const bool begun = done > 0 || !may_give_up || stream_->must_repeat();
      const bool room = begun ? wait_for_rest(call, bound, whole_by) : wait_for_room(call, bound);
      if (!room) return false;
    } else if (attach && sent < 0 && code != EINTR && !is_end_of_stream(code)) {
      throw Error(ISOGATE_RESOURCE_EXHAUSTED,
                  "cannot pass descriptors to the runner: " + std::generic_category().message(code), code);
    } else if (sent == 0 || code != EINTR) {
      fail("cannot send: " + std::generic_category().message(sent == 0 ? EPIPE : code));
      return false;
    }
  }
  return true;
}

bool Connection::wait_for_room(Pending& call, const Bound& bound) {
  auto stalled = Clock::now() + patience_.stalled;
  std::array<pollfd, 2> watched{{{stream_->room_fd(), POLLOUT, 0}, {bound.cancel_fd, POLLIN, 0}}};
  while (alive()) {
    wait(call, Awaits::kRoom, watched, std::min(stalled, bound.until));
    if (watched[1].revents != 0) return false;
    if (watched[0].revents != 0) return true;
    if (is_past(bound.until)) return false;
    if (stream_->is_away()) stalled = Clock::now() + patience_.stalled;
    if (is_past(stalled)) fail(kTakesNothing);
  }
  return false;
}

// Of what must go out whole, or the connection ends.
bool Connection::wait_for_rest(Pending& call, Bound& bound, Clock::time_point& whole_by) {
  const auto cancelled = std::max(patience_.cancelled, patience_.killed);
  auto stalled = Clock::now() + patience_.stalled;
  if (whole_by == kForEver) whole_by = stalled + std::chrono::seconds(outbox_.size() / kLeastPerSecond);
  std::array<pollfd, 2> watched{{{stream_->room_fd(), POLLOUT, 0}, {bound.cancel_fd, POLLIN, 0}}};
  while (alive()) {
    wait(call, Awaits::kRoom, watched, std::min({stalled, whole_by, bound.until, call.ends}));
    if (watched[1].revents != 0 || is_past(bound.until)) {
      call.ends = std::min(call.ends, Clock::now() + cancelled);
      bound = {};
      watched[1].fd = -1;
    }
    if (stream_->is_away()) {
      stalled = Clock::now() + patience_.stalled;
      whole_by = std::max(whole_by, stalled);
      call.ends = std::max(call.ends, Clock::now() + cancelled);
    }
    const bool slow = is_past(whole_by) || is_past(call.ends);
    if (watched[0].revents != 0 && !slow) return true;
    if (slow || is_past(stalled)) fail(slow ? "it takes bytes too slowly" : kTakesNothing);
  }
  return false;
}

}  // namespace isogate::sdk::link
