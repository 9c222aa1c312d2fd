#include "runner/agent/link/long_session.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

namespace isogate::agent {
namespace {

constexpr int kOverduePause = 25;  // milliseconds; a reaper that is stopped causes no event

}  // namespace

Result<std::unique_ptr<LongSession>> LongSession::begin(Place& place, Peer peer, Poller& nudged) {
  std::unique_ptr<LongSession> made(new LongSession(place, nudged));
  if (auto opened = made->open(std::move(peer)); !opened) return opened.error();
  return made;
}

Result<void> LongSession::open(Peer peer) {
  first_.magic = ISOGATE_RUNNER_RESUME_MAGIC;
  first_.version = ISOGATE_RUNNER_RESUME_VERSION;
  first_.status = ISOGATE_RUNNER_RESUMED;
  if (::getrandom(first_.session, sizeof first_.session, 0) != sizeof first_.session)
    return os_error("cannot generate a session's id", errno);
  std::memcpy(owner_, peer.request.owner, sizeof owner_);
  if (auto opened = poller_.open(); !opened) return opened;
  auto line = ResumableConnection::make(
      first_, std::chrono::seconds(std::min(peer.request.grace_sec, ISOGATE_RUNNER_MAX_GRACE_SEC)));
  if (!line) return line.error();
  connection_ = std::move(*line);
  session_ = std::make_unique<Session>(place_, *connection_, poller_);
  if (auto started = session_->start(); !started) return started;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    session_->stop();
    run();
    return Error{ISOGATE_RESOURCE_EXHAUSTED, error.code().value(), "cannot start a thread for a session"};
  }
  if (!connection_->attach(std::move(peer.stream), peer.request.received)) session_->stop();
  return {};
}

LongSession::~LongSession() {
  if (!thread_.joinable()) return;
  session_->stop();
  thread_.join();
}

void LongSession::run() {
  std::vector<char> buffer(ISOGATE_RUNNER_MAX_FRAME);
  while (!session_->is_over()) {
    const bool overdue = session_->handle_overdue() > Clock::duration::zero();
    for (const uint64_t key : poller_.wait(overdue ? kOverduePause : -1)) session_->pump(key, buffer);
  }
  over_ = true;
  nudged_.nudge();
}

bool LongSession::has_id(const uint8_t (&id)[16]) const {
  return std::memcmp(id, first_.session, sizeof id) == 0;
}

bool LongSession::has_owner(const uint8_t (&owner)[16]) const {
  return std::memcmp(owner, owner_, sizeof owner) == 0;
}

}  // namespace isogate::agent
