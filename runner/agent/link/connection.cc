#include "runner/agent/link/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace isogate::agent {
namespace {

constexpr size_t kMostDescriptors = 3;  // of one frame
constexpr size_t kMostBatches = 4;      // that belong to no frame yet

int address_family(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  return address.ss_family;
}

// The rest of `parts` after `done` bytes.
size_t advance(std::array<iovec, 3>& parts, size_t done) {
  size_t left = 0;
  for (iovec& part : parts) {
    const size_t step = std::min(done, part.iov_len);
    part.iov_base = static_cast<char*>(part.iov_base) + step;
    part.iov_len -= step;
    done -= step;
    left += part.iov_len;
  }
  return left;
}

iovec part_of(std::string_view bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }

}  // namespace

Result<std::unique_ptr<PlainConnection>> PlainConnection::make(Fd in, Fd out, int interrupt,
                                                               std::function<bool()> interrupted) {
  std::unique_ptr<PlainConnection> made(new PlainConnection);
  auto stop = make_event();
  if (!stop) return stop.error();
  made->stop_ = std::move(*stop);
  const int family = address_family(in.get());
  made->socket_ = family >= 0;
  made->descriptors_ = family == AF_UNIX;
  made->in_ = std::move(in);
  if (!made->socket_) {
    if (!make_non_blocking(out.get())) return os_error("cannot use the output of this process", errno);
    made->out_ = std::move(out);
  }
  made->interrupt_ = interrupt;
  made->interrupted_ = std::move(interrupted);
  return made;
}

// False: stopped, or interrupted for good.
bool PlainConnection::wait(int fd, short events) {
  for (;;) {
    std::array<pollfd, 3> slots{{{fd, events, 0}, {stop_.get(), POLLIN, 0}, {-1, POLLIN, 0}}};
    if ((events & POLLOUT) != 0) slots[2].fd = interrupt_;
    if (::poll(slots.data(), slots.size(), -1) < 0 && errno != EINTR) return false;
    if (slots[1].revents != 0) return false;
    if (slots[2].revents != 0 && interrupted_()) return false;
    if (slots[0].revents != 0) return true;
  }
}

// False: more than one frame may have.
bool PlainConnection::keep_descriptors(void* message) {
  msghdr& header = *static_cast<msghdr*>(message);
  Batch batch;
  batch.cut = (header.msg_flags & MSG_CTRUNC) != 0;
  batch.fds = received_descriptors(header);
  if (batch.fds.empty() && !batch.cut) return true;
  const bool fits = batch.fds.size() <= kMostDescriptors && batches_.size() < kMostBatches;
  batches_.push_back(std::move(batch));
  return fits;
}

ssize_t PlainConnection::receive(std::span<char> room) {
  iovec part{room.data(), room.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * (kMostDescriptors + 1))> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(in_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got > 0 && message.msg_controllen > 0 && !keep_descriptors(&message)) return 0;
  return got;
}

size_t PlainConnection::read(std::span<char> room) {
  for (;;) {
    if (!socket_ && !wait(in_.get(), POLLIN)) return 0;
    const ssize_t got = socket_ ? receive(room) : ::read(in_.get(), room.data(), room.size());
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return 0;
    if (socket_ && !wait(in_.get(), POLLIN)) return 0;
  }
}

std::optional<Batch> PlainConnection::take_batch() {
  if (batches_.empty()) return std::nullopt;
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  return batch;
}

bool PlainConnection::send(uint16_t type, uint32_t stream, std::string_view body, std::string_view bytes) {
  const isogate_runner_frame head = {static_cast<uint32_t>(body.size() + bytes.size()), type, 0, stream};
  std::array<iovec, 3> parts{part_of({reinterpret_cast<const char*>(&head), sizeof head}), part_of(body),
                             part_of(bytes)};
  const std::lock_guard lock(sending_);
  while (!stopped_) {
    ssize_t sent = 0;
    if (socket_) {
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts.size();
      sent = ::sendmsg(in_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      sent = ::writev(out_.get(), parts.data(), static_cast<int>(parts.size()));
    }
    if (sent >= 0 && advance(parts, static_cast<size_t>(sent)) == 0) return true;
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN || !wait(socket_ ? in_.get() : out_.get(), POLLOUT)) break;
  }
  stop();
  return false;
}

void PlainConnection::stop() {
  if (stopped_.exchange(true)) return;
  signal_event(stop_.get());
  if (socket_) ::shutdown(in_.get(), SHUT_RDWR);
}

}  // namespace isogate::agent
