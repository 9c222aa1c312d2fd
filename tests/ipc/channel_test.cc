#include "gateway/ipc/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/ipc/samples.h"

namespace isogate::ipc {
namespace {

class Channel : public testing::Test {
 protected:
  Channel() : pair_(std::move(*make_socket_pair())) {}

  void send_raw(std::string bytes, const std::vector<int>& fds) {
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::string control(CMSG_SPACE(fds.size() * sizeof(int)), '\0');
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    }
    ASSERT_EQ(::sendmsg(pair_.own.get(), &message, 0), static_cast<ssize_t>(bytes.size()));
  }

  Result<Received> receive() { return receive_record(pair_.theirs.get(), Wait::kDont); }

  void expect_refused() {
    auto received = receive();
    ASSERT_FALSE(received.ok());
    EXPECT_EQ(received.error().status, ISOGATE_INVALID_ARGUMENT) << received.error().message;
  }

  SocketPair pair_;
};

std::string head_of_memfd(uint64_t size) {
  std::string head(1, '\2');
  head.append(reinterpret_cast<const char*>(&size), sizeof size);
  head.append(kBeginBytes, '\0');
  return head;
}

Fd memfd(size_t size, int seals) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

constexpr int kAllSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

TEST_F(Channel, CarriesRecordsOfAnySizeWithTheirDescriptors) {
  for (size_t size :
       {size_t{1}, size_t{100}, kMaxInlineBytes, kMaxInlineBytes + 1, size_t{1} << 20, kMaxPayloadBytes}) {
    std::string bytes(size, 'x');
    bytes.back() = 'y';
    Fd event_fd = event();
    ASSERT_TRUE(send_record(pair_.own.get(), bytes, {event_fd.get(), event_fd.get()}, Wait::kBlock).ok())
        << size;
    auto received = receive_record(pair_.theirs.get(), Wait::kBlock);
    ASSERT_TRUE(received.ok()) << received.error().message;
    EXPECT_EQ(received->bytes, bytes);
    ASSERT_EQ(received->fds.size(), 2u);
    for (const Fd& fd : received->fds) EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
  }
}

TEST_F(Channel, CarriesAsManyDescriptorsAsItsCapHoweverTheRecordTravels) {
  const Fd event_fd = event();
  const std::vector<int> many(kMaxChannelFds, event_fd.get());
  for (const size_t size : {size_t{1}, kMaxInlineBytes + 1}) {
    ASSERT_TRUE(send_record(pair_.own.get(), std::string(size, 'x'), many, Wait::kBlock).ok()) << size;
    auto received = receive();
    ASSERT_TRUE(received.ok()) << received.error().message;
    EXPECT_EQ(received->bytes.size(), size);
    EXPECT_EQ(received->fds.size(), kMaxChannelFds);
  }
}

TEST_F(Channel, KeepsRecordsApartAndInOrder) {
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(send_record(pair_.own.get(), std::to_string(i), {}, Wait::kDont).ok());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(receive()->bytes, std::to_string(i));
}

TEST_F(Channel, LeaksNoDescriptorWhateverIsReceived) {
  Fd event_fd = event();
  int before = open_descriptors();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(send_record(pair_.own.get(), "x", {event_fd.get()}, Wait::kBlock).ok());
    ASSERT_TRUE(receive().ok());
    send_raw("\3x", {event_fd.get()});
    expect_refused();
    send_raw("\2x", {event_fd.get()});
    expect_refused();
    send_raw(head_of_memfd(10), {event_fd.get(), event_fd.get()});
    expect_refused();
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Channel, RefusesMoreDescriptorsThanItsCapAndClosesThem) {
  Fd event_fd = event();
  std::vector<int> many(kMaxChannelFds + 1, event_fd.get());
  EXPECT_FALSE(send_record(pair_.own.get(), "x", many, Wait::kBlock).ok());
  int before = open_descriptors();
  send_raw("\1x", std::vector<int>(200, event_fd.get()));
  expect_refused();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Channel, RefusesATruncatedRecord) {
  send_raw("\1" + std::string(kMaxInlineBytes + 1, 'x'), {});
  expect_refused();
}

TEST_F(Channel, RefusesUnknownKindsAndEmptyRecords) {
  for (const char* bytes : {"\1", "\3x", "xx"}) {
    send_raw(bytes, {});
    expect_refused();
  }
  EXPECT_FALSE(send_record(pair_.own.get(), "", {}, Wait::kBlock).ok());
  EXPECT_FALSE(send_record(pair_.own.get(), std::string(kMaxPayloadBytes + 1, 'x'), {}, Wait::kBlock).ok());
}

TEST_F(Channel, RefusesAMemfdThatCouldStillChange) {
  for (int missing : {F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE}) {
    Fd fd = memfd(70000, kAllSeals & ~missing);
    send_raw(head_of_memfd(70000), {fd.get()});
    expect_refused();
  }
}

TEST_F(Channel, RefusesAMemfdOfAnotherSize) {
  Fd fd = memfd(70000, kAllSeals);
  for (uint64_t size : {uint64_t{0}, uint64_t{69999}, uint64_t{70001}, UINT64_MAX}) {
    send_raw(head_of_memfd(size), {fd.get()});
    expect_refused();
  }
  Fd large = memfd(kMaxPayloadBytes + 1, kAllSeals);
  send_raw(head_of_memfd(kMaxPayloadBytes + 1), {large.get()});
  expect_refused();
  send_raw(head_of_memfd(70000), {});
  expect_refused();
}

TEST_F(Channel, SaysWhenNothingIsThereAndWhenThePeerIsBehindOrGone) {
  EXPECT_EQ(receive().error().os_errno, EAGAIN);
  std::string bytes(kMaxInlineBytes, 'x');
  int sent = 0;
  Result<void> last;
  while (last.ok() && sent < 1000) {
    last = send_record(pair_.own.get(), bytes, {}, Wait::kDont);
    ++sent;
  }
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.error().os_errno, EAGAIN);
  pair_.theirs.reset();
  EXPECT_EQ(send_record(pair_.own.get(), "x", {}, Wait::kBlock).error().os_errno, EPIPE);  // and no SIGPIPE
  EXPECT_EQ(receive_record(pair_.own.get(), Wait::kBlock).error().os_errno, ECONNRESET);
}

TEST_F(Channel, EndsAfterWhatWasSentBefore) {
  ASSERT_TRUE(send_record(pair_.own.get(), "last", {}, Wait::kBlock).ok());
  pair_.own.reset();
  EXPECT_EQ(receive()->bytes, "last");
  EXPECT_EQ(receive().error().os_errno, ECONNRESET);
}

TEST_F(Channel, ServesManyThreadsOnOneSocket) {
  constexpr int kEach = 500;
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::atomic<int> got = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        auto received = receive_record(pair_.theirs.get(), Wait::kBlock);
        ASSERT_TRUE(received.ok());
        ASSERT_EQ(received->bytes, std::string(received->bytes.size(), received->bytes[0]));
        ASSERT_EQ(received->fds.size(), 1u);
        ++got;
      }
    });
    threads.emplace_back([&, t] {
      Fd event_fd = event();
      for (int i = 0; i < kEach; ++i) {
        std::string bytes(i % 50 == 0 ? 100000 : 100, static_cast<char>('a' + t));
        ASSERT_TRUE(send_record(pair_.own.get(), bytes, {event_fd.get()}, Wait::kBlock).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, kEach * kThreads);
}

// A peer that runs out of descriptors keeps the channel: this record came without some of them, the next one
// is complete.
TEST_F(Channel, DescriptorsThatFindNoRoomAreReportedAsLost) {
  const Fd event_fd = event();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  for (const size_t size : {size_t{100}, size_t{100000}}) {
    ExecCall call;
    call.call.id = 12345 + size;
    call.argv = {std::string(size, 'x')};
    const std::string bytes = encode(Call(std::move(call))).bytes;
    ASSERT_TRUE(send_record(pair_.own.get(), bytes, {event_fd.get(), event_fd.get()}, Wait::kDont).ok());
    const Fd next(::dup(event_fd.get()));
    const rlimit full{static_cast<rlim_t>(next.get()), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &full), 0);
    auto received = receive_record(pair_.theirs.get(), Wait::kDont);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_TRUE(received.ok()) << received.error().message;
    EXPECT_TRUE(received->fds_lost);
    EXPECT_EQ(call_id(received->bytes), 12345 + size) << "the call to refuse";
  }
  ASSERT_TRUE(send_record(pair_.own.get(), "after", {event_fd.get()}, Wait::kDont).ok());
  const auto received = receive_record(pair_.theirs.get(), Wait::kDont);
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(received->fds_lost);
  EXPECT_EQ(received->fds.size(), 1u);
}

}  // namespace
}  // namespace isogate::ipc
