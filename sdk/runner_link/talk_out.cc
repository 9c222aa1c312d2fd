// From the runner to the caller: bytes and entries.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "talk.h"

namespace isogate::sdk::link {
namespace {

constexpr uint64_t kCreditStep = ISOGATE_RUNNER_WINDOW / 4;

}  // namespace

void Talk::take_news() {
  if (plan_.entries != nullptr) {
    collect();
    return take_entries();
  }
  push();
  while (collect()) push();
  give_credit();
}

// False: what is there waits for an outlet, or there is nothing.
bool Talk::collect() {
  const std::lock_guard lock(connection_.mutex());
  pending_.news = false;
  answered_ = pending_.answered;
  credit_ += std::exchange(pending_.credit, 0);
  if (plan_.entries != nullptr) {
    listing_.clear();
    listing_.swap(pending_.in[0].arrived);
    return false;
  }
  bool took = false;
  for (size_t i = 0; i < outlets_.size(); ++i) {
    if (!outlets_[i].empty() || pending_.in[i].arrived.empty()) continue;
    outlets_[i].take(pending_.in[i].arrived);
    took = true;
  }
  return took;
}

void Talk::take_entries() {
  if (listing_.empty()) return;
  connection_.step_down(pending_);
  for (std::string_view rest = listing_; !rest.empty();) {
    isogate_runner_entry entry{};
    const std::string_view name = link::take_entry(rest, entry);
    if (!is_sane(entry, name)) refuse("an entry that cannot be in this directory");
    if (++entries_ > plan_.most_entries) refuse("more entries than were asked for");
    if (stopped_ != nullptr) continue;
    try {
      plan_.entries->add(name, entry.type, entry.mode & 07777, entry.size, entry.mtime_ns);
    } catch (...) {
      stopped_ = std::current_exception();
    }
  }
  listed_ += listing_.size();
  if (stopped_ != nullptr && !answered_) cancel();
  give_credit();
}

void Talk::push() {
  if (outlets_[0].came() > plan_.most_bytes) refuse("more bytes than were asked for");
  for (Outlet& outlet : outlets_) outlet.push();
  if (plan_.ends_with_reader && outlets_[0].is_broken() && !cut_ && !answered_)
    stop(ISOGATE_CANCELLED, "the reader has gone");
}

void Talk::give_credit() {
  if (answered_) return;
  for (size_t i = 0; i < outlets_.size(); ++i) {
    const uint64_t passed = plan_.entries != nullptr && i == 0 ? listed_ : outlets_[i].passed();
    const uint64_t owed = passed - credited_[i];
    if (owed < kCreditStep) continue;
    const bool keeps_up = plan_.entries == nullptr && outlets_[i].empty();
    const uint64_t more = keeps_up ? std::min(owed, ISOGATE_RUNNER_WIDEST - window_[i]) : 0;
    {
      const std::lock_guard lock(connection_.mutex());
      if (!pending_.in[i].open) continue;
      pending_.in[i].allowed += owed + more;
    }
    credited_[i] += owed;
    window_[i] += more;
    post_channel(ISOGATE_RUNNER_CREDIT, ISOGATE_RUNNER_STDOUT + static_cast<uint32_t>(i),
                 static_cast<uint32_t>(owed + more));
  }
}

void Talk::drop() {
  for (size_t i = 0; i < outlets_.size(); ++i) {
    if (plan_.out_fds[i] < 0) continue;
    cut_ = cut_ || !outlets_[i].empty();
    if (!outlets_[i].empty()) outlets_[i].close();
  }
}

// The call has left the connection: nothing more comes, and nobody else is held up.
void Talk::deliver_last(Clock::time_point until) {
  for (;;) {
    take_news();
    if (outlets_[0].empty() && outlets_[1].empty()) {
      if (pending_.in[0].arrived.empty() && pending_.in[1].arrived.empty()) return;
    } else if (!wait_for_outlets(until)) {
      drop();
    } else if (!cancelled_ && call_.cancelled()) {
      cancelled_ = true;
      until = std::min(until, Clock::now() + kGrace);
    }
  }
}

// False: it is too late.
bool Talk::wait_for_outlets(Clock::time_point until) {
  std::array<pollfd, 3> fds{{{outlets_[0].wants(), POLLOUT, 0},
                             {outlets_[1].wants(), POLLOUT, 0},
                             {cancelled_ ? -1 : call_.cancel_fd(), POLLIN, 0}}};
  int timeout = -1;
  if (until != kForEver) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    timeout = static_cast<int>(std::min<int64_t>(left, 10'000));
  }
  return ::poll(fds.data(), fds.size(), timeout) >= 0 || errno == EINTR;
}

}  // namespace isogate::sdk::link
