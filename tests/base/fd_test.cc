#include "lib/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

namespace isogate {
namespace {

Fd holding(const std::string& text) {
  Fd memory(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_TRUE(write_all(memory.get(), text));
  ::lseek(memory.get(), 0, SEEK_SET);
  return memory;
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

}  // namespace
}  // namespace isogate
