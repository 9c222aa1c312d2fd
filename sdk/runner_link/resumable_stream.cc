#include "resumable_stream.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "isogate/runner_protocol.h"

namespace isogate::sdk::link {
namespace {

constexpr int kShortestPause = 50, kLongestPause = 1'000;  // between two attempts, milliseconds
// What ends at once each time is not dialled for ever, nor without a pause: who makes it end may be a tenant.
constexpr std::chrono::seconds kLasting{5};
constexpr int kMostVoid = 100, kBriefPause = 10, kLongestBriefPause = 200;
constexpr size_t kWholeFrame = sizeof(isogate_runner_frame) + ISOGATE_RUNNER_MAX_FRAME;
constexpr size_t kMostKept = ISOGATE_RUNNER_KEPT + kWholeFrame + (64u << 10);  // with short ones
constexpr uint64_t kFull = UINT64_MAX - 1;  // of an eventfd: it takes nothing more

using Clock = std::chrono::steady_clock;

int made(int fd) {
  if (fd < 0) fail_with_errno("cannot make a descriptor", errno);
  return fd;
}

bool is_again(int code) { return code == EAGAIN || code == EINTR; }

void fill(int event, uint64_t by) { [[maybe_unused]] const auto size = ::write(event, &by, sizeof by); }

void empty(int event) {
  uint64_t was = 0;
  [[maybe_unused]] const auto size = ::read(event, &was, sizeof was);
}

bool control(int set, int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  return ::epoll_ctl(set, operation, fd, &event) == 0;
}

[[noreturn]] void no_session(const std::string& why) {
  throw Error(ISOGATE_UNAVAILABLE, "cannot use the runner: " + why);
}

void wait_for(int fd, short events, const Call& call, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  std::array<pollfd, 2> watched{{{fd, events, 0}, {call.cancel_fd(), POLLIN, 0}}};
  ::poll(watched.data(), watched.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000)));
  if (watched[1].revents != 0) throw Error(ISOGATE_CANCELLED, "cancelled");
  if (watched[0].revents == 0 && left <= 0) no_session("it does not answer");
}

bool made_progress(ssize_t done) {
  if (done > 0) return true;
  if (done == 0) no_session("it ended");
  if (errno != EAGAIN && errno != EINTR) no_session(std::generic_category().message(errno));
  return false;
}

}  // namespace

isogate_runner_resumed resume_handshake(RunnerStream& stream, const isogate_runner_resume& own,
                                        const Call& call, Clock::time_point until) {
  std::array<char, sizeof own> request;
  std::memcpy(request.data(), &own, sizeof own);
  for (size_t done = 0; done < request.size();) {
    const ssize_t sent = stream.write_some(request.data() + done, request.size() - done);
    if (made_progress(sent))
      done += static_cast<size_t>(sent);
    else
      wait_for(stream.room_fd(), POLLOUT, call, until);
  }
  isogate_runner_resumed answer;
  std::array<char, sizeof answer> received;
  for (size_t done = 0; done < received.size();) {
    const ssize_t got = stream.read_some(received.data() + done, received.size() - done);
    if (made_progress(got))
      done += static_cast<size_t>(got);
    else
      wait_for(stream.fd(), POLLIN, call, until);
  }
  std::memcpy(&answer, received.data(), sizeof answer);
  if (const char* fault = fault_of(answer, own)) no_session(fault);
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

ResumableStream::ResumableStream(RunnerDial dial, const ResumeOptions& options, const Call& call)
    : dial_(std::move(dial)),
      options_(options),
      ready_(made(::epoll_create1(EPOLL_CLOEXEC))),
      room_(made(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      over_event_(made(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  if (!control(ready_.get(), EPOLL_CTL_ADD, over_event_.get(), EPOLLIN))
    fail_with_errno("cannot watch a descriptor", errno);
  auto stream = dial_(call);
  const auto answer = resume_handshake(*stream, preamble(), call, Clock::now() + options_.first);
  if (answer.status != ISOGATE_RUNNER_RESUMED || !exchange_.resume(answer.received))
    throw Error(ISOGATE_UNAVAILABLE, "the runner has no session to give");
  std::copy(std::begin(answer.session), std::end(answer.session), session_.begin());
  const std::lock_guard lock(mutex_);
  adopt(std::move(stream));
}

ResumableStream::~ResumableStream() {
  shutdown();
  if (redial_.joinable()) redial_.join();
}

isogate_runner_resume ResumableStream::preamble() const {
  isogate_runner_resume own{};
  own.magic = ISOGATE_RUNNER_RESUME_MAGIC;
  own.version = ISOGATE_RUNNER_RESUME_VERSION;
  std::copy(session_.begin(), session_.end(), own.session);
  std::copy(options_.owner.begin(), options_.owner.end(), own.owner);
  own.grace_sec = static_cast<uint32_t>(options_.grace.count());
  own.received = exchange_.received();
  return own;
}

ssize_t ResumableStream::read_some(char* to, size_t size) {
  const std::lock_guard lock(mutex_);
  if (stream_ && !over_) flush();
  const ssize_t got = receive(to, size);
  if (stream_ && !over_) flush();
  if (got > 0) return got;
  if (over_ && exchange_.is_over()) return 0;
  errno = over_ ? ECONNRESET : EAGAIN;
  return -1;
}

// The number of bytes of the session; 0: none now.
ssize_t ResumableStream::receive(char* to, size_t size) {
  while (stream_ && !over_) {
    const ssize_t got = stream_->read_some(to, size);
    if (got < 0 && is_again(errno)) return 0;
    if (got <= 0) {
      lose();
      return 0;
    }
    last_received_ = Clock::now();
    const size_t left = exchange_.receive({to, static_cast<size_t>(got)});
    brought_ = brought_ || left > 0;
    tell_room();
    if (exchange_.fault() != nullptr || exchange_.is_over()) end();
    if (left > 0) return static_cast<ssize_t>(left);
  }
  return 0;
}

// Of so many bytes. A frame is taken whole or not at all, unless it is a larger EXEC: who waits for room has
// sent nothing of it, and may give up. A short one, such as CANCEL, does not wait for room.
size_t ResumableStream::takes(size_t size) const {
  const size_t room = exchange_.room();
  if (size <= kShort && exchange_.kept() + size <= kMostKept) return size;
  return room > 0 && size <= kWholeFrame ? size : std::min(size, room);
}

ssize_t ResumableStream::write_some(const char* from, size_t size) {
  const std::lock_guard lock(mutex_);
  if (over_) {
    errno = EPIPE;
    return -1;
  }
  const size_t taken = takes(size);
  exchange_.add({from, taken});
  if (stream_) flush();
  tell_room();
  if (taken > 0) return static_cast<ssize_t>(taken);
  errno = EAGAIN;
  return -1;
}

void ResumableStream::flush() {
  for (auto bytes = exchange_.next(); !bytes.empty(); bytes = exchange_.next()) {
    const ssize_t sent = stream_->write_some(bytes.data(), bytes.size());
    if (sent > 0) {
      exchange_.took(static_cast<size_t>(sent));
    } else if (sent < 0 && is_again(errno)) {
      break;
    } else {
      return lose();
    }
  }
  watch();
}

// Who polls fd() for something to read comes back also to send what is left.
void ResumableStream::watch() {
  const bool wanted = exchange_.has_more();
  if (wanted == watches_room_) return;
  watches_room_ = wanted;
  if (stream_->room_fd() == stream_->fd()) {
    control(ready_.get(), EPOLL_CTL_MOD, stream_->fd(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
  } else {
    control(ready_.get(), wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, stream_->room_fd(), EPOLLOUT);
  }
}

void ResumableStream::tell_room() {
  const bool full = !over_ && exchange_.room() == 0;
  if (full == full_) return;
  full_ = full;
  full ? fill(room_.get(), kFull) : empty(room_.get());
}

void ResumableStream::lose() {
  const auto last = std::max(last_received_, stream_->last_received());
  if (watches_room_ && stream_->room_fd() != stream_->fd())
    control(ready_.get(), EPOLL_CTL_DEL, stream_->room_fd(), 0);
  control(ready_.get(), EPOLL_CTL_DEL, stream_->fd(), 0);
  lost_ = std::move(stream_);
  if (over_) return;
  const bool lasted = Clock::now() - adopted_ >= kLasting;
  brief_ = lasted ? 1 : brief_ + 1;
  void_ = lasted || brought_ ? 0 : void_ + 1;
  if (void_ > kMostVoid) return end();
  if (redial_.joinable()) redial_.join();  // it has found this stream, and ended
  sigset_t all, before;                    // signals are the host's
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    const int first = brief_ == 1 ? 0 : std::min(kBriefPause * brief_, kLongestBriefPause);
    redial_ = std::thread([this, until = last + options_.patience, first] { redial(until, first); });
  } catch (const std::system_error&) {
    end();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ResumableStream::end() {
  if (over_) return;
  over_ = true;
  fill(over_event_.get(), 1);
  tell_room();
}

void ResumableStream::shutdown() {
  const std::lock_guard lock(mutex_);
  const bool was_over = over_;
  end();
  if (!stream_) return;
  if (!was_over) exchange_.add_goodbye();
  flush();
  if (stream_) stream_->shutdown();
}

bool ResumableStream::has_buffered() const {
  const std::lock_guard lock(mutex_);
  return stream_ && stream_->has_buffered();
}

bool ResumableStream::hung_up() const {
  const std::lock_guard lock(mutex_);
  return over_ || (stream_ && stream_->hung_up());
}

bool ResumableStream::is_away() const {
  const std::lock_guard lock(mutex_);
  return !over_ && !stream_;
}

void ResumableStream::adopt(std::unique_ptr<RunnerStream> stream) {
  if (!control(ready_.get(), EPOLL_CTL_ADD, stream->fd(), EPOLLIN)) return end();
  stream_ = std::move(stream);
  watches_room_ = false;
  last_received_ = adopted_ = Clock::now();
  brought_ = false;
  tell_room();
  watch();
}

void ResumableStream::redial(Clock::time_point until, int first_pause) {
  {
    std::unique_lock lock(mutex_);
    const auto lost = std::move(lost_);
    lock.unlock();  // its end may take a moment
  }
  for (int milliseconds = first_pause; pause(milliseconds);
       milliseconds = std::clamp(2 * milliseconds, kShortestPause, kLongestPause)) {
    if (Clock::now() >= until) break;
    if (dial_once(until)) return;
  }
  const std::lock_guard lock(mutex_);
  end();
}

bool ResumableStream::dial_once(Clock::time_point until) try {
  const auto now = Clock::now();
  until = std::min(until, now + options_.attempt);
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch());
  const isogate_call abi{sizeof abi, over_event_.get(), left.count(), {}};
  const Call call(abi);
  auto stream = dial_(call);
  const auto answer = resume_handshake(*stream, preamble(), call, until);
  const std::lock_guard lock(mutex_);
  if (over_) return true;
  if (answer.status != ISOGATE_RUNNER_RESUMED || !exchange_.resume(answer.received)) {
    end();
    return true;
  }
  adopt(std::move(stream));
  return true;
} catch (const Error& error) {
  if (error.status() != ISOGATE_NOT_FOUND && error.status() != ISOGATE_CANCELLED) return false;
  const std::lock_guard lock(mutex_);
  end();
  return true;
} catch (const std::exception&) {
  return false;
}

bool ResumableStream::pause(int milliseconds) const {
  pollfd over{over_event_.get(), POLLIN, 0};
  return ::poll(&over, 1, milliseconds) == 0;
}

}  // namespace isogate::sdk::link

namespace isogate::sdk {

std::unique_ptr<RunnerStream> resumable_stream(RunnerDial dial, const ResumeOptions& options,
                                               const Call& call) {
  return std::make_unique<link::ResumableStream>(std::move(dial), options, call);
}

}  // namespace isogate::sdk
