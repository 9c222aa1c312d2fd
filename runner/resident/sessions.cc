#include "runner/resident/sessions.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace isogate::resident {
namespace {

bool is_new(const isogate_runner_resume& said) {
  return std::all_of(std::begin(said.session), std::end(said.session),
                     [](uint8_t byte) { return byte == 0; });
}

// Its client has given it up, as where the exec took too long to start.
bool is_gone(const Visitor& visitor) {
  pollfd in{visitor.stream.in.get(), POLLIN, 0};
  return ::poll(&in, 1, 0) > 0 && (in.revents & POLLHUP) != 0 && (in.revents & POLLIN) == 0;
}

// The end of the stream follows.
void answer(int out, uint32_t status) {
  isogate_runner_resumed said{};
  said.magic = ISOGATE_RUNNER_RESUME_MAGIC;
  said.version = ISOGATE_RUNNER_RESUME_VERSION;
  said.status = status;
  [[maybe_unused]] const ssize_t size = ::write(out, &said, sizeof said);
}

}  // namespace

const char* fault_of(const isogate_runner_resume& said) {
  if (said.magic != ISOGATE_RUNNER_RESUME_MAGIC) return "first words of something else";
  if (said.version != ISOGATE_RUNNER_RESUME_VERSION) return "another version of sessions";
  if ((said.reserved[0] | said.reserved[1] | said.reserved[2]) != 0) return "first words with reserved bits";
  if (is_new(said) && said.received != 0) return "a new session that is not at its begin";
  return nullptr;
}

void Sessions::receive(Visitor visitor) {
  const int out = visitor.stream.out.get();
  if (stopped_ || is_gone(visitor) || fault_of(visitor.said) != nullptr)
    return answer(out, ISOGATE_RUNNER_REFUSED);
  if (is_new(visitor.said)) return begin(std::move(visitor));
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const auto& each) { return each->has_id(visitor.said.session); });
  if (found == sessions_.end()) return answer(out, ISOGATE_RUNNER_UNKNOWN);
  const Fd kept(::fcntl(out, F_DUPFD_CLOEXEC, 3));
  if (!(*found)->resume(std::move(visitor)) && kept) answer(kept.get(), ISOGATE_RUNNER_UNKNOWN);
}

void Sessions::begin(Visitor visitor) {
  const int out = visitor.stream.out.get();
  for (const auto& each : sessions_)
    if (each->has_owner(visitor.said.owner)) each->stop();
  const auto lasting =
      std::count_if(sessions_.begin(), sessions_.end(), [](const auto& each) { return !each->is_over(); });
  if (lasting >= static_cast<ptrdiff_t>(ISOGATE_RUNNER_MAX_SESSIONS))
    return answer(out, ISOGATE_RUNNER_REFUSED);
  const Fd kept(::fcntl(out, F_DUPFD_CLOEXEC, 3));
  auto begun = LongSession::begin(place_, std::move(visitor), poller_);
  if (begun)
    sessions_.push_back(std::move(*begun));
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

}  // namespace isogate::resident
