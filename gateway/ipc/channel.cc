#include "gateway/ipc/channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace isogate::ipc {
namespace {

// Each record starts with one byte that encodes where its payload is; with kMemfd its length follows, and how
// it begins.
constexpr char kInline = 1;
constexpr char kMemfd = 2;
constexpr size_t kBeginAt = 1 + sizeof(uint64_t);
constexpr size_t kMemfdRecordBytes = kBeginAt + kBeginBytes;
constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
constexpr size_t kControlBytes = CMSG_SPACE((kMaxChannelFds + 1) * sizeof(int));

Result<void> send_message(int socket, msghdr& message, Wait wait) {
  int flags = MSG_NOSIGNAL | (wait == Wait::kDont ? MSG_DONTWAIT : 0);
  while (::sendmsg(socket, &message, flags) < 0) {
    if (errno == EINTR) continue;
    return os_error("cannot send a record", errno == ECONNRESET ? EPIPE : errno);
  }
  return {};
}

Result<Fd> seal(std::string_view bytes) {
  Fd memfd(::memfd_create("isogate-record", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd) return os_error("cannot make a memfd for a record", errno);
  if (!write_all(memfd.get(), bytes)) return os_error("cannot write a record to its memfd", errno);
  if (::fcntl(memfd.get(), F_ADD_SEALS, kSeals) != 0) return os_error("cannot seal a record", errno);
  return memfd;
}

Result<void> send_sealed(int socket, std::string_view bytes, const std::vector<int>& fds, Wait wait) {
  auto memfd = seal(bytes);
  if (!memfd) return memfd.error();
  std::array<char, kMemfdRecordBytes> head{};
  head[0] = kMemfd;
  uint64_t size = bytes.size();
  std::memcpy(head.data() + 1, &size, sizeof size);
  bytes.copy(head.data() + kBeginAt, kBeginBytes);
  iovec part{head.data(), head.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  std::vector<int> all = {memfd->get()};
  all.insert(all.end(), fds.begin(), fds.end());
  attach_descriptors(message, control.data(), all);
  return send_message(socket, message, wait);
}

Result<Received> open_sealed(std::string_view head, std::vector<Fd> fds, bool lost) {
  if (head.size() != kMemfdRecordBytes || fds.empty()) return invalid("a record in a memfd came without it");
  uint64_t size = 0;
  std::memcpy(&size, head.data() + 1, sizeof size);
  Fd memfd = std::move(fds.front());
  fds.erase(fds.begin());
  struct stat info {};
  int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return invalid("a record in a memfd that is not sealed");
  if (::fstat(memfd.get(), &info) != 0) return os_error("cannot look at the memfd of a record", errno);
  if (size == 0 || size > kMaxPayloadBytes || static_cast<uint64_t>(info.st_size) != size)
    return invalid("a record in a memfd of another size than announced");
  Received received{std::string(size, '\0'), std::move(fds), lost};
  for (size_t done = 0; done < size;) {
    ssize_t n = ::pread(memfd.get(), received.bytes.data() + done, size - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return os_error("cannot read the memfd of a record", n < 0 ? errno : EIO);
    done += static_cast<size_t>(n);
  }
  return received;
}

}  // namespace

std::string inline_record(std::string_view bytes) { return kInline + std::string(bytes); }

Result<SocketPair> make_socket_pair() {
  return isogate::make_socket_pair(SOCK_SEQPACKET, "cannot make a socket pair");
}

bool is_shortage(int os_errno) {
  return os_errno == EMFILE || os_errno == ENFILE || os_errno == ENOMEM || os_errno == ENOBUFS ||
         os_errno == ETOOMANYREFS;
}

Result<void> send_record(int socket, std::string_view bytes, const std::vector<int>& fds, Wait wait) {
  if (bytes.empty()) return invalid("a record is empty or over a cap");
  if (bytes.size() > kMaxPayloadBytes) return invalid("a record is over 16 MiB");
  if (fds.size() > kMaxChannelFds) return invalid("a record has too many descriptors");
  if (bytes.size() > kMaxInlineBytes) return send_sealed(socket, bytes, fds, wait);
  char kind = kInline;
  iovec parts[2] = {{&kind, 1}, {const_cast<char*>(bytes.data()), bytes.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  attach_descriptors(message, control.data(), fds);
  return send_message(socket, message, wait);
}

Result<Received> receive_record(int socket, Wait wait) {
  std::array<char, kMaxInlineBytes + 1> buffer;  // on the stack: only the pages a record fills are touched
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  int flags = MSG_CMSG_CLOEXEC | (wait == Wait::kDont ? MSG_DONTWAIT : 0);
  ssize_t n = 0;
  do n = ::recvmsg(socket, &message, flags);
  while (n < 0 && errno == EINTR);
  if (n < 0) return os_error("cannot receive a record", errno);
  bool foreign = false;
  std::vector<Fd> fds = received_descriptors(message, [&foreign](cmsghdr&) { foreign = true; });
  if (n == 0) return os_error("the channel has ended", ECONNRESET);
  const size_t most_fds = kMaxChannelFds + (buffer[0] == kMemfd ? 1 : 0);
  if (foreign || (message.msg_flags & MSG_TRUNC) != 0 || fds.size() > most_fds)
    return invalid("a record came truncated or with foreign control data");
  const bool lost = (message.msg_flags & MSG_CTRUNC) != 0;
  std::string_view record(buffer.data(), static_cast<size_t>(n));
  if (record[0] == kMemfd && fds.empty() && lost && record.size() == kMemfdRecordBytes)
    return Received{std::string(record.substr(kBeginAt)), {}, true};
  if (record[0] == kMemfd) return open_sealed(record, std::move(fds), lost);
  if (record[0] != kInline || n == 1) return invalid("a record of an unknown kind");
  return Received{std::string(record.substr(1)), std::move(fds), lost};
}

Result<std::string> receive_bytes(int socket, Wait wait) {
  std::array<char, kMaxInlineBytes + 1> buffer;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};  // without room for control data the kernel drops it and sets MSG_CTRUNC
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t n = 0;
  do n = ::recvmsg(socket, &message, wait == Wait::kDont ? MSG_DONTWAIT : 0);
  while (n < 0 && errno == EINTR);
  if (n < 0) return os_error("cannot receive a record", errno);
  if ((message.msg_flags & MSG_CTRUNC) != 0) return invalid("a record came with descriptors");
  if (n == 0) return os_error("the channel has ended", ECONNRESET);
  if ((message.msg_flags & MSG_TRUNC) != 0) return invalid("a record came truncated");
  if (buffer[0] != kInline || n == 1) return invalid("a record of an unknown kind");
  return std::string(buffer.data() + 1, static_cast<size_t>(n - 1));
}

}  // namespace isogate::ipc
