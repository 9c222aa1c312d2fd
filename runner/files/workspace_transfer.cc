#include "runner/files/workspace_transfer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <vector>

#include "lib/fd.h"
#include "lib/sigpipe.h"

namespace isogate {
namespace {

constexpr size_t kChunk = 1 << 20;       // requested of one splice; the pipe bounds it further
constexpr size_t kBuffer = 64 << 10;     // of the copy without splice
constexpr uint64_t kCopyStep = 8 << 20;  // between two looks at cancel_fd

Error cancelled_error() { return {ISOGATE_CANCELLED, ECANCELED, "cancelled"}; }
Error gone_error() { return {ISOGATE_CANCELLED, EPIPE, "the reader has gone"}; }
Error shrank_error() {
  return {ISOGATE_RESOURCE_EXHAUSTED, EBUSY, "the file shrank while it was read; try again"};
}

// Waits until `fd` is ready or cancel_fd fires.
Result<void> wait_for(int fd, int16_t events, int cancel_fd) {
  std::array<pollfd, 2> fds{{{fd, events, 0}, {cancel_fd, POLLIN, 0}}};
  while (::poll(fds.data(), fds.size(), -1) < 0)
    if (errno != EINTR) return os_error("cannot wait for the peer", errno);
  if (fds[1].revents != 0) return cancelled_error();
  if ((events & POLLOUT) != 0 && (fds[0].revents & POLLERR) != 0) return gone_error();
  if ((fds[0].revents & POLLNVAL) != 0) return os_error("cannot wait for the peer", EBADF);
  return {};
}

Result<void> write_error(int code) {
  if (code == EPIPE || code == ECONNRESET) return gone_error();
  return os_error("cannot pass the bytes on", code);
}

Result<void> write_piece(int out, const char* data, size_t size, int cancel_fd) {
  while (size > 0) {
    if (auto ready = wait_for(out, POLLOUT, cancel_fd); !ready) return ready;
    const ssize_t done = ::write(out, data, std::min<size_t>(size, PIPE_BUF));
    if (done < 0 && errno != EAGAIN && errno != EINTR) return write_error(errno);
    if (done > 0) data += done, size -= static_cast<size_t>(done);
  }
  return {};
}

Result<uint64_t> buffer_out(int file, uint64_t offset, uint64_t count, int out, int cancel_fd) {
  std::vector<char> buffer(kBuffer);
  uint64_t sent = 0;
  while (sent < count) {
    const ssize_t got = ::pread(file, buffer.data(), std::min<uint64_t>(count - sent, kBuffer),
                                static_cast<off_t>(offset + sent));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error("cannot read", errno);
    if (got == 0) break;
    if (auto wrote = write_piece(out, buffer.data(), static_cast<size_t>(got), cancel_fd); !wrote)
      return wrote.error();
    sent += static_cast<uint64_t>(got);
  }
  return sent;
}

// Waits for bytes, but not if there is no room for them.
Result<void> wait_for_piece(int in, int cancel_fd, const Room& room) {
  if (auto ready = wait_for(in, POLLIN, cancel_fd); !ready) return ready;
  return room ? room() : Result<void>();
}

Result<uint64_t> buffer_in(int in, int file, int cancel_fd, uint64_t total, const Room& room) {
  std::vector<char> buffer(kBuffer);
  for (;;) {
    if (auto ready = wait_for_piece(in, cancel_fd, room); !ready) return ready.error();
    const ssize_t got = ::read(in, buffer.data(), buffer.size());
    if (got == 0) return total;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return os_error("cannot receive the bytes", errno);
    if (!write_all(file, {buffer.data(), static_cast<size_t>(got)})) return os_error("cannot write", errno);
    total += static_cast<uint64_t>(got);
  }
}

Result<uint64_t> splice_in(int in, int file, int cancel_fd, const Room& room) {
  for (uint64_t total = 0;;) {
    if (auto ready = wait_for_piece(in, cancel_fd, room); !ready) return ready.error();
    const ssize_t got = ::splice(in, nullptr, file, nullptr, kChunk, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (got == 0) return total;
    if (got < 0 && errno == EINVAL) return buffer_in(in, file, cancel_fd, total, room);
    if (got < 0 && errno != EAGAIN && errno != EINTR) return os_error("cannot write", errno);
    if (got > 0) total += static_cast<uint64_t>(got);
  }
}

// One run of data, `end` exclusive; both offsets are the same in both files except for `shift`.
Result<void> copy_run(int from, uint64_t begin, uint64_t end, int to, uint64_t shift, int cancel_fd,
                      const Room& room) {
  while (begin < end) {
    if (is_signalled(cancel_fd)) return cancelled_error();
    if (room)
      if (auto left = room(); !left) return left;
    auto in = static_cast<off64_t>(begin), out = static_cast<off64_t>(begin + shift);
    const size_t step = std::min(end - begin, kCopyStep);
    ssize_t done = ::copy_file_range(from, &in, to, &out, step, 0);
    if (done < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)) {
      if (::lseek(to, out, SEEK_SET) < 0) return os_error("cannot write", errno);
      done = ::sendfile(to, from, &in, step);
    }
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return os_error("cannot copy the present content", errno);
    if (done == 0) return shrank_error();
    begin += static_cast<uint64_t>(done);
  }
  return {};
}

}  // namespace

Result<void> wait_readable(int fd, int cancel_fd) { return wait_for(fd, POLLIN, cancel_fd); }

Result<uint64_t> pump_out(int file, uint64_t offset, uint64_t count, int out, int cancel_fd) {
  const SigpipeGuard guard;
  uint64_t sent = 0;
  while (sent < count) {
    auto from = static_cast<off64_t>(offset + sent);
    const ssize_t done = ::splice(file, &from, out, nullptr, std::min<uint64_t>(count - sent, kChunk),
                                  SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (done == 0) break;
    if (done < 0 && errno == EINVAL) {
      auto rest = buffer_out(file, offset + sent, count - sent, out, cancel_fd);
      if (rest) *rest += sent;
      return rest;
    }
    if (done < 0 && errno != EAGAIN && errno != EINTR) return write_error(errno).error();
    if (done > 0) sent += static_cast<uint64_t>(done);
    if (sent == count) break;
    if (auto ready = wait_for(out, POLLOUT, cancel_fd); !ready) return ready.error();
  }
  return sent;
}

Result<void> pump_bytes(std::string_view bytes, int out, int cancel_fd) {
  const SigpipeGuard guard;
  return write_piece(out, bytes.data(), bytes.size(), cancel_fd);
}

Result<uint64_t> pump_in(int in, int file, int cancel_fd, const Room& room) {
  auto total = splice_in(in, file, cancel_fd, room);
  if (total && is_signalled(cancel_fd)) return cancelled_error();
  return total;
}

Result<void> copy_file(int from, uint64_t size, int to, int cancel_fd, const Room& room) {
  const off_t start = ::lseek(to, 0, SEEK_CUR);
  if (start < 0) return os_error("cannot write", errno);
  const auto shift = static_cast<uint64_t>(start);
  if (size > INT64_MAX - shift) return os_error("cannot write", EFBIG);
  for (uint64_t at = 0; at < size;) {
    const off_t data = ::lseek(from, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;
    const off_t hole = data < 0 ? -1 : ::lseek(from, data, SEEK_HOLE);
    const uint64_t begin = data < 0 ? at : static_cast<uint64_t>(data);
    const uint64_t end = hole < 0 ? size : std::min(size, static_cast<uint64_t>(hole));
    if (begin >= size) break;
    if (auto copied = copy_run(from, begin, end, to, shift, cancel_fd, room); !copied) return copied;
    at = end;
  }
  struct stat now {};
  if (::fstat(from, &now) != 0) return os_error("cannot copy the present content", errno);
  if (static_cast<uint64_t>(now.st_size) < size) return shrank_error();  // it had data where no hole is
  if (::ftruncate(to, static_cast<off_t>(shift + size)) != 0) return os_error("cannot write", errno);
  if (::lseek(to, static_cast<off_t>(shift + size), SEEK_SET) < 0) return os_error("cannot write", errno);
  return {};
}

}  // namespace isogate
