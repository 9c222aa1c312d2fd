#include "peer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "sdk/runner_link/link.h"

namespace isogate::testing {

isogate_runner_hello hello(uint32_t flags) {
  isogate_runner_hello said{};
  said.magic = ISOGATE_RUNNER_MAGIC;
  said.major = ISOGATE_RUNNER_MAJOR;
  said.flags = flags;
  said.pid = 7;
  said.uid = 1000;
  std::strcpy(said.build, "test");
  return said;
}

isogate_runner_result success() { return {}; }

std::string frame(uint16_t type, uint32_t stream, std::string_view payload, uint16_t flags) {
  return raw(isogate_runner_frame{static_cast<uint32_t>(payload.size()), type, flags, stream})
      .append(payload);
}

std::string result_frame(uint32_t stream, const isogate_runner_result& result, std::string_view message) {
  return frame(ISOGATE_RUNNER_RESULT, stream,
               raw(result) + raw(static_cast<uint32_t>(message.size())).append(message));
}

std::string channel_frame(uint16_t type, uint32_t stream, uint32_t channel, uint32_t bytes,
                          std::string_view data) {
  return frame(type, stream, raw(isogate_runner_channel{channel, bytes}).append(data));
}

std::string entry(std::string_view name, uint32_t type, uint64_t size) {
  isogate_runner_entry one{};
  one.type = type;
  one.mode = 0644;
  one.size = size;
  one.name_length = static_cast<uint32_t>(name.size());
  return raw(one).append(name);
}

Peer::Peer() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::runtime_error("socketpair");
  fd_ = ends[0];
  client_ = ends[1];
}

Peer::~Peer() {
  close();
  if (client_ >= 0) ::close(client_);
  for (const int fd : taken_) ::close(fd);
}

void Peer::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::unique_ptr<sdk::RunnerStream> Peer::client_end(bool descriptors) {
  return sdk::socket_stream(std::exchange(client_, -1), descriptors);
}

std::shared_ptr<sdk::RunnerLink> Peer::link(uint32_t flags, int patience_ms) {
  send(frame(ISOGATE_RUNNER_HELLO, 0, raw(hello(flags))));
  const Ask ask;
  const std::chrono::milliseconds patience(patience_ms);
  auto made =
      sdk::link::connect(client_end(), std::chrono::seconds(5), ask.call, {patience, patience, patience});
  const Heard heard = hear();
  EXPECT_EQ(heard.head.type, ISOGATE_RUNNER_HELLO);
  EXPECT_EQ(heard.as<isogate_runner_hello>().magic, ISOGATE_RUNNER_MAGIC);
  return made;
}

void Peer::narrow() const {
  const int least = 1;
  EXPECT_EQ(::setsockopt(client_, SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
}

bool Peer::try_send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void Peer::send(std::string_view bytes) { EXPECT_TRUE(try_send(bytes)); }

bool Peer::fill(char* to, size_t size, std::vector<int>* fds) {
  while (size > 0) {
    alignas(cmsghdr) std::array<char, 64> control{};
    iovec part{to, size};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return false;
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      for (size_t at = 0; at + sizeof(int) <= head->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
        taken_.push_back(fd);
        if (fds != nullptr) fds->push_back(fd);
      }
    }
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

Heard Peer::hear() {
  Heard heard;
  if (!fill(reinterpret_cast<char*>(&heard.head), sizeof heard.head, &heard.fds)) return {};
  heard.payload.resize(heard.head.size);
  if (!fill(heard.payload.data(), heard.payload.size(), nullptr)) return {};
  return heard;
}

Heard Peer::expect(uint16_t type) {
  for (;;) {
    Heard heard = hear();
    if (heard.head.type == ISOGATE_RUNNER_CREDIT && type != ISOGATE_RUNNER_CREDIT) continue;
    EXPECT_EQ(heard.head.type, type);
    return heard;
  }
}

bool Peer::is_silent(int milliseconds) const {
  pollfd one{fd_, POLLIN, 0};
  return ::poll(&one, 1, milliseconds) == 0;
}

Begun::Begun(const std::string& program) : exec({program}) {
  exec.out = out.writer;
  done = exec.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
}

void Begun::end() {
  peer.send(result_frame(1, success()));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
}

}  // namespace isogate::testing
