#include "lib/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <initializer_list>

namespace isogate {
namespace {

Fd holding(const std::string& text) {
  Fd memory(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_TRUE(write_all(memory.get(), text));
  ::lseek(memory.get(), 0, SEEK_SET);
  return memory;
}

// The access modes of 0, 1 and 2 after that, where `closed` were closed.
std::array<int, 3> access_modes(std::initializer_list<int> closed, ClosedStandard as) {
  auto pipe = make_pipe();
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (const int fd : closed) ::close(fd);
    std::array<int, 3> modes{-1, -1, -1};
    if (open_standard_descriptors(as).ok())
      for (int fd = 0; fd <= 2; ++fd) modes[static_cast<size_t>(fd)] = ::fcntl(fd, F_GETFL) & O_ACCMODE;
    ::_exit(::write(pipe->write.get(), modes.data(), sizeof modes) == sizeof modes ? 0 : 1);
  }
  std::array<int, 3> modes{-1, -1, -1};
  pipe->write.reset();
  EXPECT_EQ(::read(pipe->read.get(), modes.data(), sizeof modes), ssize_t{sizeof modes});
  ::waitpid(pid, nullptr, 0);
  return modes;
}

TEST(StandardDescriptors, ThatAreClosedAreReplaced) {
  EXPECT_EQ(access_modes({0, 1, 2}, ClosedStandard::kNull), (std::array{O_RDWR, O_RDWR, O_RDWR}));
  EXPECT_EQ(access_modes({0, 1, 2}, ClosedStandard::kError), (std::array{O_WRONLY, O_RDONLY, O_RDONLY}));
  auto unchanged = access_modes({}, ClosedStandard::kError);
  unchanged[1] = O_RDONLY;
  EXPECT_EQ(access_modes({1}, ClosedStandard::kError), unchanged);
}

TEST(ReadToEnd, TellsTooLargeFromEnded) {
  const std::string most(2048, 'x');
  EXPECT_EQ(*read_to_end(holding("").get(), 2048, "cannot read it"), "");
  EXPECT_EQ(*read_to_end(holding(most).get(), 2048, "cannot read it"), most);
  const auto refused = read_to_end(holding(most + "x").get(), 2048, "cannot read it");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(refused.error().os_errno, EFBIG);
  EXPECT_EQ(refused.error().message, "cannot read it: it is over 2 KiB");
}

TEST(ReadToEnd, KeepsTheErrno) {
  const Fd directory(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto refused = read_to_end(directory.get(), 1024, "cannot read it");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().os_errno, EISDIR);
  EXPECT_EQ(refused.error().message, "cannot read it: Is a directory");
}

TEST(WriteAll, KeepsTheErrno) {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_TRUE(write_all(full.get(), ""));
  EXPECT_FALSE(write_all(full.get(), "x"));
  EXPECT_EQ(errno, ENOSPC);
}

TEST(Descriptors, AreCopiedAndWaitedFor) {
  const auto event = make_event();
  const auto copy = copy_of(event->get());
  ASSERT_TRUE(copy.ok());
  EXPECT_NE(::fcntl(copy->get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(is_signalled(copy->get()));
  signal_event(event->get());
  EXPECT_TRUE(is_signalled(copy->get(), std::chrono::hours(1)));
  EXPECT_FALSE(copy_of(-1).ok());
}

TEST(Timers, AreReadableOnceTheirTimeHasPassed) {
  using namespace std::chrono_literals;
  const auto late = make_timer(1h), soon = make_timer(0ms);
  EXPECT_TRUE(is_signalled(soon->get(), 10s));
  EXPECT_FALSE(is_signalled(late->get(), 10ms));
  EXPECT_FALSE(is_signalled(-1, 10ms));
}

}  // namespace
}  // namespace isogate
