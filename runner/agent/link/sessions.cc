#include "runner/agent/link/sessions.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace isogate::agent {
namespace {

constexpr int kOverduePause = 25;  // milliseconds; a reaper that is stopped causes no event

bool is_new(const isogate_runner_resume& request) {
  return std::all_of(std::begin(request.session), std::end(request.session),
                     [](uint8_t byte) { return byte == 0; });
}

// Its client has closed it, as when the exec took too long to start.
bool is_gone(const Peer& peer) {
  pollfd in{peer.stream.in.get(), POLLIN, 0};
  return ::poll(&in, 1, 0) > 0 && (in.revents & POLLHUP) != 0 && (in.revents & POLLIN) == 0;
}

// The end of the stream follows.
void answer(int out, uint32_t status) {
  isogate_runner_resumed reply{};
  reply.magic = ISOGATE_RUNNER_RESUME_MAGIC;
  reply.version = ISOGATE_RUNNER_RESUME_VERSION;
  reply.status = status;
  [[maybe_unused]] const ssize_t size = ::write(out, &reply, sizeof reply);
}

}  // namespace

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

const char* fault_of(const isogate_runner_resume& request) {
  if (request.magic != ISOGATE_RUNNER_RESUME_MAGIC) return "a resume request of another protocol";
  if (request.version != ISOGATE_RUNNER_RESUME_VERSION) return "another version of sessions";
  if ((request.reserved[0] | request.reserved[1] | request.reserved[2]) != 0)
    return "a resume request with reserved bits";
  if (is_new(request) && request.received != 0) return "a new session that has received bytes";
  return nullptr;
}

void Sessions::receive(Peer peer) {
  const int out = peer.stream.out.get();
  if (stopped_ || is_gone(peer) || fault_of(peer.request) != nullptr)
    return answer(out, ISOGATE_RUNNER_REFUSED);
  if (is_new(peer.request)) return begin(std::move(peer));
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const auto& each) { return each->has_id(peer.request.session); });
  if (found == sessions_.end()) return answer(out, ISOGATE_RUNNER_UNKNOWN);
  const Fd kept(::fcntl(out, F_DUPFD_CLOEXEC, 3));
  if (!(*found)->resume(std::move(peer)) && kept) answer(kept.get(), ISOGATE_RUNNER_UNKNOWN);
}

void Sessions::begin(Peer peer) {
  const int out = peer.stream.out.get();
  for (const auto& each : sessions_)
    if (each->has_owner(peer.request.owner)) each->stop();
  const auto lasting =
      std::count_if(sessions_.begin(), sessions_.end(), [](const auto& each) { return !each->is_over(); });
  if (lasting >= static_cast<ptrdiff_t>(ISOGATE_RUNNER_MAX_SESSIONS))
    return answer(out, ISOGATE_RUNNER_REFUSED);
  const Fd kept(::fcntl(out, F_DUPFD_CLOEXEC, 3));
  auto begun = std::make_unique<LongSession>(place_, poller_);
  if (begun->open(std::move(peer)))
    sessions_.push_back(std::move(begun));
  else if (kept)
    answer(kept.get(), ISOGATE_RUNNER_REFUSED);
}

std::vector<std::string> Sessions::reap() {
  std::vector<std::string> faults;
  std::erase_if(sessions_, [&](const auto& each) {
    if (!each->is_over()) return false;
    if (std::string why = each->why(); !why.empty()) faults.push_back(std::move(why));
    return true;
  });
  return faults;
}

void Sessions::stop() {
  stopped_ = true;
  for (const auto& each : sessions_) each->stop();
}

}  // namespace isogate::agent
