#include "client_call.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace isogate::sdk::link {

ClientCall::ClientCall(Connection& connection, const Call& call, const Plan& plan)
    : connection_(connection),
      call_(call),
      plan_(plan),
      outlets_{Outlet(plan.out_fds[0]), Outlet(plan.out_fds[1])} {
  for (size_t i = 0; i < plan_.out_fds.size(); ++i) pending_.in[i].open = plan_.out_fds[i] >= 0;
  if (plan_.entries != nullptr) pending_.in[0].open = true;
  pending_.lists = plan_.entries != nullptr;
  pending_.feeds = plan_.feed_fd >= 0;
  pending_.connects = plan_.ready_fd >= 0;
  pending_.rejoins = plan_.rejoins;
}

void ClientCall::not_sent() {
  if (!connection_.alive())
    throw Error(ISOGATE_UNAVAILABLE, "contact with the runner was lost: " + connection_.why());
  throw Error(ISOGATE_CANCELLED, "cancelled");
}

void ClientCall::lost(const std::string& why) {
  connection_.leave(pending_);
  deliver_last(Clock::now() + kGrace);
  if (plan_.kind != Kind::kReads) throw Error(ISOGATE_LOST, "contact with the runner was lost: " + why);
  if (plan_.passes_out || received() != 0 || entries_ != 0)
    throw BrokenOff("contact with the runner was lost before everything had come: " + why);
  throw Error(ISOGATE_UNAVAILABLE, "contact with the runner was lost: " + why);
}

const isogate_runner_result& ClientCall::await_result() {
  if (plan_.has_body && plan_.feed_fd < 0 && plan_.complete_fd < 0) end_body(true);
  for (;;) {
    const bool alive = connection_.alive();
    take_received();
    if (answered_) break;
    if (!alive) lost(connection_.why());
    wait();
  }
  connection_.leave(pending_);
  deliver_last(cancelled_ ? std::max(grace_ends_, Clock::now() + kGrace) : kForEver);
  return conclude();
}

void ClientCall::wait() {
  const bool goes_on = !cancelled_;
  const auto set = [&](Watched which, int fd, int16_t events) { watched_[which] = {fd, events, 0}; };
  set(kCancel, goes_on ? call_.cancel_fd() : -1, POLLIN);
  set(kFeed, goes_on && has_credit_ ? plan_.feed_fd : -1, POLLIN);
  set(kControl, goes_on ? plan_.control_fd : -1, POLLIN);
  set(kComplete, goes_on && plan_.body_fd >= 0 ? plan_.complete_fd : -1, POLLIN);
  set(kBody, goes_on ? plan_.body_fd : -1, 0);
  set(kOut, outlets_[0].wants(), POLLOUT);
  set(kErr, outlets_[1].wants(), POLLOUT);
  set(kDetach, goes_on ? plan_.detach_fd : -1, POLLIN);
  connection_.wait(pending_, Awaits::kUpdate, watched_, std::min({pending_.ends, grace_ends_, plan_.until}));
  handle_watched();
  check_deadlines();
}

void ClientCall::handle_watched() {
  if (watched_[kOut].revents != 0 || watched_[kErr].revents != 0) push();
  if (watched_[kCancel].revents != 0) return cancel();
  if (watched_[kDetach].revents != 0) detach();
  if (watched_[kControl].revents != 0) forward_control();
  if (watched_[kFeed].revents != 0) feed();
  if (watched_[kComplete].revents != 0 || watched_[kBody].revents != 0) check_body();
}

// What has come is delivered as far as it is taken at once: the rest is there for who rejoins.
void ClientCall::detach() {
  detached_ = true;
  connection_.abandon(pending_);
  connection_.leave(pending_);
  throw Error(ISOGATE_LOST, "it was left alone, and goes on");
}

void ClientCall::check_deadlines() {
  if (Clock::now() >= plan_.until) {
    connection_.abandon(pending_);
    lost("it did not answer in time");
  }
  if (!cancelled_) return;
  was_away_ = was_away_ || connection_.is_away();
  const auto now = Clock::now();
  if (now >= grace_ends_) {
    grace_ends_ = kForEver;
    drop();
  }
  if (now < pending_.ends) return;
  if (!was_away_) return connection_.fail("it does not end a call that was cancelled");
  // The runner gets the cancellation once the stream is back; other calls go on.
  connection_.abandon(pending_);
  lost("it was not back when a cancelled call had to end");
}

void ClientCall::cancel() {
  if (cancelled_) return;
  cancelled_ = true;
  was_away_ = connection_.is_away();
  const Patience& patience = connection_.patience();
  pending_.ends = std::min(pending_.ends,
                           Clock::now() + (plan_.kind == Kind::kRuns ? patience.killed : patience.cancelled));
  grace_ends_ = Clock::now() + kGrace;
  connection_.post(pending_, bound(),
                   [&](std::string& out) { FrameWriter(out, ISOGATE_RUNNER_CANCEL, pending_.stream); });
}

void ClientCall::stop(isogate_status status, const char* why) {
  if (stopped_ == nullptr) stopped_ = std::make_exception_ptr(Error(status, why));
  cancel();
}

const isogate_runner_result& ClientCall::conclude() {
  if (plan_.ends_with_reader && outlets_[0].is_broken() && stopped_ == nullptr)
    throw Error(ISOGATE_CANCELLED, cut_ ? "cancelled" : "the reader has gone");
  const isogate_runner_result& result = pending_.result;
  if (plan_.has_body && !body_ended_ && result.status == ISOGATE_OK)
    connection_.refuse("a write without its end");
  if (stopped_ != nullptr) std::rethrow_exception(stopped_);
  if (result.status == ISOGATE_OK) return result;
  const bool known = result.status > ISOGATE_OK && result.status < ISOGATE_SANDBOX_LOST;
  const bool of_file = result.status == ISOGATE_IS_DIRECTORY || result.status == ISOGATE_NOT_REGULAR;
  const isogate_status unknown = plan_.kind == Kind::kRuns ? ISOGATE_LOST : ISOGATE_INTERNAL;
  throw Error(known || of_file ? result.status : unknown,
              pending_.message.empty() ? "the runner gave no reason" : pending_.message,
              result.os_errno > 0 && result.os_errno < 4096 ? result.os_errno : 0);
}

namespace {

constexpr size_t kPiece = ISOGATE_RUNNER_MAX_FRAME - sizeof(isogate_runner_channel);

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & POLLIN) != 0;
}

}  // namespace

void ClientCall::post_channel(uint16_t type, uint32_t channel, uint32_t bytes) {
  connection_.post(pending_, bound(), [&](std::string& out) {
    FrameWriter(out, type, pending_.stream).add(isogate_runner_channel{channel, bytes});
  });
}

void ClientCall::feed() {
  if (buffer_.empty()) buffer_.resize(kPiece);
  uint64_t allowed = 0;
  {
    const std::lock_guard lock(connection_.mutex());
    allowed = pending_.credit.take(kPiece);
  }
  const ssize_t got = ::read(plan_.feed_fd, buffer_.data(), allowed);
  const int code = errno;
  const uint64_t size = got > 0 ? static_cast<uint64_t>(got) : 0;
  {
    const std::lock_guard lock(connection_.mutex());
    pending_.credit.give_back(allowed - size);
  }
  if (got < 0 && (code == EAGAIN || code == EINTR)) return;
  if (got < 0 && plan_.has_body) return stop(ISOGATE_IO, "cannot read the body");
  if (got <= 0) return end_feed();
  const bool sent = connection_.send(pending_, bound(), {}, [&](std::string& out) {
    FrameWriter(out, ISOGATE_RUNNER_DATA, pending_.stream)
        .add(isogate_runner_channel{ISOGATE_RUNNER_STDIN, 0})
        .bytes({buffer_.data(), size});
  });
  if (sent)
    fed_ += size;
  else
    plan_.feed_fd = -1;  // these bytes are missing: nothing follows them
}

void ClientCall::end_feed() {
  plan_.feed_fd = -1;
  if (plan_.has_body) return end_body(plan_.complete_fd < 0 || is_readable(plan_.complete_fd));
  if (plan_.is_kept && !is_readable(plan_.input_end_fd)) return;
  post_channel(ISOGATE_RUNNER_END, ISOGATE_RUNNER_STDIN, 0);
}

void ClientCall::end_body(bool whole) {
  plan_.body_fd = -1;
  if (!whole) return stop(ISOGATE_CANCELLED, "its sender went away before the body was complete");
  body_ended_ = true;
  post_channel(ISOGATE_RUNNER_END, ISOGATE_RUNNER_STDIN, 0);
}

// The sender signals that the body is whole before it closes its end; after that it cannot.
void ClientCall::check_body() {
  if ((watched_[kComplete].revents & POLLIN) != 0) return end_body(true);
  end_body(is_readable(plan_.complete_fd));
}

void ClientCall::forward_control() {
  std::array<isogate_control, 16> records;
  const ssize_t got = ::read(plan_.control_fd, records.data(), sizeof records);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0 || static_cast<size_t>(got) % sizeof records[0] != 0) {
    plan_.control_fd = -1;
    return;
  }
  connection_.send(pending_, bound(), {}, [&](std::string& out) {
    for (size_t i = 0; i < static_cast<size_t>(got) / sizeof records[0]; ++i) {
      const isogate_control& record = records[i];
      if (record.type == ISOGATE_CONTROL_SIGNAL || record.type == ISOGATE_CONTROL_RESIZE)
        FrameWriter(out, ISOGATE_RUNNER_CONTROL, pending_.stream).add(record);
    }
  });
}

void ClientCall::take_received() {
  if (plan_.entries != nullptr) {
    collect();
    return take_entries();
  }
  push();
  while (collect()) {
    pass_state_on();
    push();
  }
  pass_state_on();
  pass_marks_on();
  give_credit();
}

void ClientCall::pass_state_on() {
  if (!rejoined_ || plan_.state_fd < 0) return;
  isogate_kept_state state{};
  state.stdout_offset = pending_.state.stdout_offset;
  state.stderr_offset = pending_.state.stderr_offset;
  if ((pending_.state.flags & ISOGATE_RUNNER_REJOINED_STDIN) != 0) state.flags |= ISOGATE_KEPT_STDIN_OPEN;
  [[maybe_unused]] const ssize_t size = ::write(std::exchange(plan_.state_fd, -1), &state, sizeof state);
}

// READY, and the end of the bytes that have been passed on.
void ClientCall::pass_marks_on() {
  if (ready_ && plan_.ready_fd >= 0) ::eventfd_write(std::exchange(plan_.ready_fd, -1), 1);
  if (out_ended_ && plan_.ends_fd >= 0 && outlets_[0].empty())
    ::shutdown(std::exchange(plan_.ends_fd, -1), SHUT_WR);
}

// False: what is there waits for an outlet, or there is nothing.
bool ClientCall::collect() {
  const std::lock_guard lock(connection_.mutex());
  pending_.updated = false;
  answered_ = pending_.answered;
  has_credit_ = pending_.credit.left() > 0;
  ready_ = pending_.ready;
  rejoined_ = pending_.rejoined;
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
  out_ended_ = !pending_.in[0].open && pending_.in[0].arrived.empty();
  return took;
}

void ClientCall::take_entries() {
  if (listing_.empty()) return;
  connection_.step_down(pending_);
  for (std::string_view rest = listing_; !rest.empty();) {
    isogate_runner_entry entry{};
    const std::string_view name = link::take_entry(rest, entry);
    if (!is_sane(entry, name)) connection_.refuse("an entry that cannot be in this directory");
    if (++entries_ > plan_.most_entries) connection_.refuse("more entries than were asked for");
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

void ClientCall::push() {
  if (outlets_[0].came() > plan_.most_bytes) connection_.refuse("more bytes than were asked for");
  for (Outlet& outlet : outlets_) outlet.push();
  if (plan_.ends_with_reader && outlets_[0].is_broken() && !cut_ && !answered_)
    stop(ISOGATE_CANCELLED, "the reader has gone");
}

void ClientCall::give_credit() {
  if (answered_) return;
  for (size_t i = 0; i < outlets_.size(); ++i) {
    const uint64_t passed = plan_.entries != nullptr && i == 0 ? listed_ : outlets_[i].passed();
    if (passed - consumed_[i] < kCreditStep) continue;
    uint32_t granted = 0;
    {
      const std::lock_guard lock(connection_.mutex());
      Inbound& in = pending_.in[i];
      if (!in.open) continue;
      in.window.consume(passed - consumed_[i]);
      granted = in.window.grant(plan_.entries == nullptr && outlets_[i].empty());
    }
    consumed_[i] = passed;
    post_channel(ISOGATE_RUNNER_CREDIT, ISOGATE_RUNNER_STDOUT + static_cast<uint32_t>(i), granted);
  }
}

void ClientCall::drop() {
  for (size_t i = 0; i < outlets_.size(); ++i) {
    if (plan_.out_fds[i] < 0) continue;
    cut_ = cut_ || !outlets_[i].empty();
    if (!outlets_[i].empty()) outlets_[i].close();
  }
}

// The call has left the connection: nothing more comes, and nobody else is held up.
void ClientCall::deliver_last(Clock::time_point until) {
  for (;;) {
    take_received();
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
bool ClientCall::wait_for_outlets(Clock::time_point until) {
  std::array<pollfd, 3> fds{{{outlets_[0].wants(), POLLOUT, 0},
                             {outlets_[1].wants(), POLLOUT, 0},
                             {cancelled_ ? -1 : call_.cancel_fd(), POLLIN, 0}}};
  if (Clock::now() >= until) return false;
  return ::poll(fds.data(), fds.size(), milliseconds_to(until)) >= 0 || errno == EINTR;
}

}  // namespace isogate::sdk::link
