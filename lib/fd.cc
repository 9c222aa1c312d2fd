#include "lib/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

namespace isogate {

Result<void> open_standard_descriptors(ClosedStandard as) {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    const int access = as == ClosedStandard::kNull ? O_RDWR : fd == 0 ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", access) != fd) return os_error("cannot open /dev/null", errno);
  }
  return {};
}

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return os_error("cannot make a pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

Result<Pipe> make_pipe(NonBlocking end) {
  auto pipe = make_pipe();
  if (!pipe) return pipe;
  const Fd& chosen = end == NonBlocking::kRead ? pipe->read : pipe->write;
  if (::fcntl(chosen.get(), F_SETFL, O_NONBLOCK) != 0) return os_error("cannot make a pipe", errno);
  return pipe;
}

bool make_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

Result<SocketPair> make_socket_pair(int type, const std::string& attempt) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0) return os_error(attempt, errno);
  return SocketPair{Fd(ends[0]), Fd(ends[1])};
}

Result<Fd> make_event() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return os_error("cannot make an eventfd", errno);
  return Fd(fd);
}

Result<Fd> make_shared_event() {
  const int fd = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (fd < 0) return os_error("cannot make a timerfd", errno);
  return Fd(fd);
}

void signal_event(int event_fd) {
  const uint64_t one = 1;
  while (::write(event_fd, &one, sizeof one) < 0) {
    if (errno == EINTR) continue;
    const itimerspec past{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = 1}};
    if (errno == EINVAL) ::timerfd_settime(event_fd, TFD_TIMER_ABSTIME, &past, nullptr);
    return;
  }
}

void clear_event(int event_fd) {
  eventfd_t count = 0;
  ::eventfd_read(event_fd, &count);
}

bool is_signalled(int fd, std::chrono::milliseconds most) {
  using Clock = std::chrono::steady_clock;
  if (fd < 0 && most.count() == 0) return false;
  pollfd one{fd, POLLIN, 0};
  const auto until = Clock::now() + most;
  for (;;) {
    const int found = ::poll(&one, 1, static_cast<int>(std::max<int64_t>(most.count(), 0)));
    if (found >= 0 || errno != EINTR) return found > 0;
    most = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  }
}

Result<Fd> make_timer(std::chrono::milliseconds after) {
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const auto count = std::max<int64_t>(1, after.count());  // 0 would disarm it
  itimerspec when{};
  when.it_value = {count / 1000, count % 1000 * 1'000'000};
  if (!timer || ::timerfd_settime(timer.get(), 0, &when, nullptr) != 0)
    return os_error("cannot set a timer", errno);
  return timer;
}

Result<Fd> copy_of(int fd) {
  Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return os_error("cannot copy a descriptor", errno);
  return copy;
}

Result<Mark> make_mark() { return make_socket_pair(SOCK_DGRAM, "cannot make a pair of sockets"); }

void signal_mark(int own) { ::send(own, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }

std::vector<Fd> received_descriptors(msghdr& message, const std::function<void(cmsghdr&)>& other) {
  std::vector<Fd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      if (other) other(*part);
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

void attach_descriptors(msghdr& message, char* control, std::span<const int> fds) {
  if (fds.empty()) return;
  const size_t size = fds.size_bytes();
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(size);
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(head), fds.data(), size);
}

Result<std::string> read_to_end(int fd, size_t most, const std::string& attempt) {
  std::string bytes;
  for (std::array<char, 16384> piece;;) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error(attempt, errno);
    if (n == 0) return bytes;
    bytes.append(piece.data(), static_cast<size_t>(n));
    if (bytes.size() > most) break;
  }
  const bool mib = most >= 1 << 20;
  return Error{ISOGATE_INVALID_ARGUMENT, EFBIG,
               attempt + ": it is over " + std::to_string(most >> (mib ? 20 : 10)) + (mib ? " MiB" : " KiB")};
}

Result<std::string> read_link(int dir, const std::string& path, const std::string& attempt) {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(dir, path.c_str(), target.data(), target.size());
  if (size < 0) return os_error(attempt, errno);
  if (static_cast<size_t>(size) == target.size()) return os_error(attempt, ENAMETOOLONG);
  target.resize(static_cast<size_t>(size));
  return target;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace isogate
