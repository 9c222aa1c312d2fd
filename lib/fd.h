// Owned file descriptors, and whole reads and writes of them.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/error.h"

struct cmsghdr;
struct msghdr;

namespace isogate {

// Closed by the destructor. Movable, not copyable.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// What replaces a standard descriptor that is closed, so that no other file gets its number.
enum class ClosedStandard {
  kNull,   // /dev/null
  kError,  // what can be neither read nor written as it should: EBADF
};
// At the start of a program, before anything is opened.
Result<void> open_standard_descriptors(ClosedStandard as);

struct Pipe {
  Fd read;
  Fd write;
};

enum class NonBlocking { kRead, kWrite };

// Both ends close-on-exec and blocking; or one of them does not block.
Result<Pipe> make_pipe();
Result<Pipe> make_pipe(NonBlocking end);

// O_NONBLOCK, beside the flags that it has. False: errno says why.
bool make_non_blocking(int fd);

struct SocketPair {
  Fd own, theirs;
};
// Two connected Unix sockets, close-on-exec; `type`: SOCK_STREAM, with SOCK_NONBLOCK, … An error begins with
// `attempt`.
Result<SocketPair> make_socket_pair(int type, const std::string& attempt);

// An eventfd, close-on-exec, non-blocking.
Result<Fd> make_event();
// The same for what a process that is not trusted has too: a timerfd, whose signal that process cannot make
// block, as it can that of an eventfd (by F_SETFL). Readable some microseconds after the signal.
Result<Fd> make_shared_event();

// Makes either readable for good. Async-signal-safe.
void signal_event(int event_fd);
// What was signalled so far no longer makes an eventfd of make_event() readable.
void clear_event(int event_fd);
// True once that or another descriptor is readable; -1 never is. Waits for it up to `most`.
bool is_signalled(int fd, std::chrono::milliseconds most = std::chrono::milliseconds(0));

// A timerfd, close-on-exec, non-blocking, that is readable once `after` has passed.
Result<Fd> make_timer(std::chrono::milliseconds after);

// Another descriptor of the same file, close-on-exec.
Result<Fd> copy_of(int fd);

// An event that is in order with what happens to a pipe: `theirs`, for a process that is not trusted, is
// readable for good as soon as `own` has been signalled, also once `own` is closed. Two datagram sockets.
using Mark = SocketPair;
Result<Mark> make_mark();
void signal_mark(int own);

// The descriptors that came with a received message, all of them. `other` gets its further control data.
std::vector<Fd> received_descriptors(msghdr& message, const std::function<void(cmsghdr&)>& other = {});
// Sends these with a message: `control` has CMSG_SPACE of their bytes.
void attach_descriptors(msghdr& message, char* control, std::span<const int> fds);

// All that is left of a descriptor that blocks. An error begins with `attempt`; that of more than `most`
// bytes (a whole number of KiB) is ISOGATE_INVALID_ARGUMENT with EFBIG.
Result<std::string> read_to_end(int fd, size_t most, const std::string& attempt);

// Where a symlink below this directory leads, or that of an O_PATH descriptor if the path is empty. An error
// begins with `attempt`.
Result<std::string> read_link(int dir, const std::string& path, const std::string& attempt);

// Of a failed call on a descriptor that does not block: it can be repeated, perhaps only once poll(2) says
// so.
inline bool would_block(int code) { return code == EAGAIN || code == EINTR; }

// To a descriptor that blocks. False: not all was written, and errno says why.
[[nodiscard]] bool write_all(int fd, std::string_view bytes);

}  // namespace isogate
