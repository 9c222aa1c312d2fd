#include "connection.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace isogate::sdk::link {
namespace {

int milliseconds_to(Clock::time_point until) {
  if (until == kForEver) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

}  // namespace

Connection::Connection(std::unique_ptr<RunnerStream> stream, Patience patience)
    : stream_(std::move(stream)), patience_(patience), inbox_(new char[kInbox]) {}

Connection::~Connection() { stream_->shutdown(); }

void Connection::wait(Pending& call, Awaits awaits, std::span<pollfd> also, Clock::time_point until) {
  for (pollfd& one : also) one.revents = 0;
  bool reads = false;
  if (!prepare(call, awaits, reads)) {
    ::poll(also.data(), also.size(), 0);  // so that a flood of news hides no cancellation
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
  if (dead_ || (awaits == Awaits::kNews && call.news) || (awaits == Awaits::kTurn && writer_ == &call))
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

}  // namespace isogate::sdk::link
