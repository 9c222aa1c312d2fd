#include "agree.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace isogate::sdk::link {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void unavailable(const std::string& why) {
  throw Error(ISOGATE_UNAVAILABLE, "cannot talk to the runner: " + why);
}

void wait(int fd, short events, const Call& call, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  std::array<pollfd, 2> watched{{{fd, events, 0}, {call.cancel_fd(), POLLIN, 0}}};
  ::poll(watched.data(), watched.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000)));
  if (watched[1].revents != 0) throw Error(ISOGATE_CANCELLED, "cancelled");
  if (watched[0].revents == 0 && left <= 0) unavailable("it does not answer");
}

bool goes_on(ssize_t done) {
  if (done > 0) return true;
  if (done == 0) unavailable("it ended");
  if (errno != EAGAIN && errno != EINTR) unavailable(std::generic_category().message(errno));
  return false;
}

}  // namespace

isogate_runner_resumed agree(RunnerStream& stream, const isogate_runner_resume& own, const Call& call,
                             Clock::time_point until) {
  std::array<char, sizeof own> said;
  std::memcpy(said.data(), &own, sizeof own);
  for (size_t done = 0; done < said.size();) {
    const ssize_t sent = stream.write_some(said.data() + done, said.size() - done);
    if (goes_on(sent))
      done += static_cast<size_t>(sent);
    else
      wait(stream.room_fd(), POLLOUT, call, until);
  }
  isogate_runner_resumed answer;
  std::array<char, sizeof answer> heard;
  for (size_t done = 0; done < heard.size();) {
    const ssize_t got = stream.read_some(heard.data() + done, heard.size() - done);
    if (goes_on(got))
      done += static_cast<size_t>(got);
    else
      wait(stream.fd(), POLLIN, call, until);
  }
  std::memcpy(&answer, heard.data(), sizeof answer);
  if (const char* fault = fault_of(answer, own)) unavailable(fault);
  return answer;
}

const char* fault_of(const isogate_runner_resumed& answer, const isogate_runner_resume& asked) {
  if (answer.magic != ISOGATE_RUNNER_RESUME_MAGIC) return "what answers is no isogate-runner";
  if (answer.version != ISOGATE_RUNNER_RESUME_VERSION) return "it keeps sessions in another way";
  if (answer.reserved != 0 || answer.status > ISOGATE_RUNNER_REFUSED) return "its answer has unknown parts";
  constexpr std::array<uint8_t, 16> kNone{};
  const bool is_new = std::memcmp(asked.session, kNone.data(), kNone.size()) == 0;
  if (answer.status != ISOGATE_RUNNER_RESUMED) return nullptr;
  if (std::memcmp(answer.session, is_new ? kNone.data() : asked.session, kNone.size()) == 0)
    return is_new ? "its session has no name" : nullptr;
  return is_new ? nullptr : "it answers for another session";
}

}  // namespace isogate::sdk::link
