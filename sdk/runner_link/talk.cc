#include "talk.h"

#include <algorithm>

namespace isogate::sdk::link {

Talk::Talk(Connection& connection, const Call& call, const Plan& plan)
    : connection_(connection),
      call_(call),
      plan_(plan),
      outlets_{Outlet(plan.out_fds[0]), Outlet(plan.out_fds[1])} {
  for (size_t i = 0; i < plan_.out_fds.size(); ++i)
    if (plan_.out_fds[i] >= 0) pending_.open(i);
  if (plan_.entries != nullptr) pending_.open(0);
  pending_.lists = plan_.entries != nullptr;
  pending_.feeds = plan_.feed_fd >= 0;
}

void Talk::not_sent() {
  if (!connection_.alive())
    throw Error(ISOGATE_UNAVAILABLE, "contact with the runner was lost: " + connection_.why());
  throw Error(ISOGATE_CANCELLED, "cancelled");
}

void Talk::lost(const std::string& why) {
  connection_.leave(pending_);
  deliver_last(Clock::now() + kGrace);
  throw Error(plan_.kind == Kind::kReads ? ISOGATE_UNAVAILABLE : ISOGATE_LOST,
              "contact with the runner was lost: " + why);
}

void Talk::refuse(const char* why) {
  connection_.fail(std::string("the runner cannot be believed: ") + why);
  throw Error(ISOGATE_IO, std::string("the runner cannot be believed: ") + why);
}

const isogate_runner_result& Talk::converse() {
  if (plan_.has_body && plan_.feed_fd < 0 && plan_.complete_fd <= 0) end_body(true);
  for (;;) {
    const bool alive = connection_.alive();
    take_news();
    if (answered_) break;
    if (!alive) lost(connection_.why());
    wait();
  }
  connection_.leave(pending_);
  deliver_last(cancelled_ ? std::max(grace_ends_, Clock::now() + kGrace) : kForEver);
  return conclude();
}

void Talk::wait() {
  const bool goes_on = !cancelled_;
  const auto set = [&](Watched which, int fd, int16_t events) { watched_[which] = {fd, events, 0}; };
  set(kCancel, goes_on ? call_.cancel_fd() : -1, POLLIN);
  set(kFeed, goes_on && credit_ > 0 ? plan_.feed_fd : -1, POLLIN);
  set(kControl, goes_on ? plan_.control_fd : -1, POLLIN);
  set(kComplete, goes_on && plan_.body_fd >= 0 ? plan_.complete_fd : -1, POLLIN);
  set(kBody, goes_on ? plan_.body_fd : -1, 0);
  set(kOut, outlets_[0].wants(), POLLOUT);
  set(kErr, outlets_[1].wants(), POLLOUT);
  connection_.wait(pending_, Awaits::kNews, watched_, std::min({patience_ends_, grace_ends_, plan_.until}));
  look_at_watched();
  look_at_clock();
}

void Talk::look_at_watched() {
  if (watched_[kOut].revents != 0 || watched_[kErr].revents != 0) push();
  if (watched_[kCancel].revents != 0) return cancel();
  if (watched_[kControl].revents != 0) relay_control();
  if (watched_[kFeed].revents != 0) feed();
  if (watched_[kComplete].revents != 0 || watched_[kBody].revents != 0) look_at_body();
}

void Talk::look_at_clock() {
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
  if (now < patience_ends_) return;
  if (!was_away_) return connection_.fail("it does not end a call that was cancelled");
  // It is told once the stream is back; the others go on.
  connection_.abandon(pending_);
  lost("it was not back when a cancelled call had to end");
}

void Talk::cancel() {
  if (cancelled_) return;
  cancelled_ = true;
  was_away_ = connection_.is_away();
  const Patience& patience = connection_.patience();
  patience_ends_ = Clock::now() + (plan_.kind == Kind::kRuns ? patience.killed : patience.cancelled);
  grace_ends_ = Clock::now() + kGrace;
  connection_.post(pending_,
                   [&](std::string& out) { FrameWriter(out, ISOGATE_RUNNER_CANCEL, pending_.stream); });
}

void Talk::stop(isogate_status status, const char* why) {
  if (stopped_ == nullptr) stopped_ = std::make_exception_ptr(Error(status, why));
  cancel();
}

const isogate_runner_result& Talk::conclude() {
  if (plan_.ends_with_reader && outlets_[0].is_broken() && stopped_ == nullptr)
    throw Error(ISOGATE_CANCELLED, cut_ ? "cancelled" : "the reader has gone");
  const isogate_runner_result& result = pending_.result;
  if (plan_.has_body && !body_ended_ && result.status == ISOGATE_OK) refuse("a write without its end");
  if (stopped_ != nullptr) std::rethrow_exception(stopped_);
  if (result.status == ISOGATE_OK) return result;
  const bool known = result.status > ISOGATE_OK && result.status < ISOGATE_SANDBOX_LOST;
  const bool of_file = result.status == ISOGATE_IS_DIRECTORY || result.status == ISOGATE_NOT_REGULAR;
  throw Error(known || of_file ? result.status : ISOGATE_INTERNAL,
              pending_.message.empty() ? "the runner does not say why" : pending_.message,
              result.os_errno > 0 && result.os_errno < 4096 ? result.os_errno : 0);
}

}  // namespace isogate::sdk::link
