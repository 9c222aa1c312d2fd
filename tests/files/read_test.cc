#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>

#include "tests/files/box.h"

namespace isogate::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Reads : public Box {
 protected:
  // How long a read takes to return after `act` was called while it was stuck on a full pipe.
  template <typename Act>
  Clock::duration stalled(Result<isogate_entry>& result, Act act) {
    auto pipe = make_pipe();
    auto cancel = make_event();
    auto request = request_for("big");
    request.fd = pipe->write.get();
    std::thread reader([&] { result = files().read(request, cancel->get()); });
    std::this_thread::sleep_for(100ms);
    const auto begin = Clock::now();
    act(*pipe, cancel->get());
    reader.join();
    return Clock::now() - begin;
  }
};

std::string noise(size_t size) {
  std::mt19937_64 random(42);
  std::string text(size, '\0');
  for (size_t i = 0; i + 8 <= size; i += 8) {
    const uint64_t word = random();
    std::memcpy(&text[i], &word, 8);
  }
  return text;
}

TEST_F(Reads, FillInTheEntry) {
  plant("f", "hello", 0640);
  auto pipe = make_pipe();
  auto request = request_for("f");
  request.fd = pipe->write.get();
  const auto entry = files().read(request, -1);
  ASSERT_OK(entry);
  EXPECT_EQ(entry->type, ISOGATE_ENTRY_REGULAR);
  EXPECT_EQ(entry->mode, 0640U);
  EXPECT_EQ(entry->size, 5U);
  EXPECT_GT(entry->mtime_ns, 1'600'000'000'000'000'000LL);
}

TEST_F(Reads, OffsetAndLimitCutAPiece) {
  plant("f", "0123456789");
  EXPECT_EQ(*read("f", 3, 4), "3456");
  EXPECT_EQ(*read("f", 8, 100), "89");
  EXPECT_EQ(*read("f", 10), "");
  EXPECT_EQ(*read("f", UINT64_MAX, UINT64_MAX), "");
  EXPECT_EQ(*read("f", 0, 0), "");
}

// Their size is reported as 0 or as a page, whatever they contain.
TEST_F(Reads, WhatTheKernelMakesUpComesToItsEnd) {
  open(true);
  for (const char* path : {"/proc/version", "/proc/cpuinfo", "/proc/sys/kernel/ostype",
                           "/sys/kernel/mm/transparent_hugepage/enabled"}) {
    if (!exists(path)) continue;
    const auto content = read(path, 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX);
    ASSERT_OK(content);
    EXPECT_FALSE(content->empty()) << path;
    if (std::string_view(path) == "/proc/cpuinfo") continue;  // its clock rates change
    EXPECT_EQ(*content, slurp(path));
    EXPECT_EQ(*read(path, 2, 3, ISOGATE_SCOPE_SANDBOX), slurp(path).substr(2, 3)) << path;
    EXPECT_EQ(*read(path, 100000, 3, ISOGATE_SCOPE_SANDBOX), "") << path;
  }
}

TEST_F(Reads, TheSizeOfAFileOfTheKernelIsKnownOnlyAtItsEnd) {
  open(true);
  auto pipe = make_pipe();
  auto request = request_for("/proc/version");
  request.scope = ISOGATE_SCOPE_SANDBOX;
  request.fd = pipe->write.get();
  request.limit = 0;
  EXPECT_EQ(files().read(request, -1)->size, ISOGATE_SIZE_UNKNOWN);
  request.limit = 4;
  EXPECT_EQ(files().read(request, -1)->size, ISOGATE_SIZE_UNKNOWN);
  request.limit = UINT64_MAX;
  EXPECT_EQ(files().read(request, -1)->size, slurp("/proc/version").size());
}

// /proc/self is this process here, and the kernel checks who reads as well as who opened.
TEST_F(Reads, KernelFilesAboutAProcessAreRefused) {
  open(true);
  for (const char* path :
       {"/proc/self/maps", "/proc/self/status", "/proc/1/stat", "/proc/thread-self/maps", "/proc/mounts"})
    EXPECT_STATUS(read(path, 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED) << path;
  link("/proc/self/maps", "maps");
  const std::string through = inside("maps");
  EXPECT_STATUS(read(through, 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED);
  EXPECT_FALSE(read("/proc/keys", 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX)) << "those of this process";
  if (!is_root()) GTEST_SKIP() << "the rest needs root";
  EXPECT_STATUS(read("/proc/sys/kernel/cad_pid", 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX),
                ISOGATE_PERMISSION_DENIED);
}

TEST_F(Reads, WhatProcHasOfAProcessIsRefusedToEveryCall) {
  open(true);
  for (const char* path : {"/proc/self/fd", "/proc/self/fdinfo", "/proc/self/map_files", "/proc/self/task",
                           "/proc/thread-self/ns", "/proc/1"}) {
    EXPECT_STATUS(list(path, 0, 0, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED) << path;
    EXPECT_STATUS(stat(path, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED) << path;
    auto ended = make_pipe();
    ended->write.reset();
    auto changes = make_pipe();
    auto request = request_for(path);
    request.scope = ISOGATE_SCOPE_SANDBOX;
    request.fd = changes->write.get();
    EXPECT_STATUS(files().watch(request, ended->read.get()), ISOGATE_PERMISSION_DENIED) << path;
  }
  EXPECT_STATUS(stat("/proc/self/fd/0", ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED);
  for (const char* path : {"/proc/self/fd/0", "/proc/self/fd/999999"}) {
    EXPECT_STATUS(remove(path, 0, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED) << path;
    EXPECT_STATUS(write(path, "x", 0, 0, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED) << path;
  }
  EXPECT_OK(stat("/proc/self", ISOGATE_SCOPE_SANDBOX)) << "the symlink itself";
  const auto all = list("/proc", ISOGATE_FILE_RECURSIVE, 0, ISOGATE_SCOPE_SANDBOX);
  ASSERT_OK(all);
  EXPECT_TRUE(all->has("1") && all->has("sys/kernel/ostype"));
  const auto& names = all->names;
  EXPECT_TRUE(std::none_of(names.begin(), names.end(), [](const std::string& name) {
    const size_t slash = name.find('/');
    return slash != std::string::npos && name.find_first_not_of("0123456789") == slash;
  }));
}

// Some files show more to whoever has a capability.
TEST_F(Reads, KernelFilesAreReadWithoutCapabilities) {
  if (!is_root()) GTEST_SKIP() << "an ordinary user has none";
  open(true);
  const auto shows_addresses = [](const std::string& text) {
    for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1)
      if (text.find_first_of("123456789abcdef", at) < text.find(" : ", at)) return true;
    return false;
  };
  if (!shows_addresses(slurp("/proc/iomem"))) GTEST_SKIP() << "root itself sees no addresses here";
  const auto got = read("/proc/iomem", 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX);
  EXPECT_TRUE(!got || !shows_addresses(*got)) << *got;
}

TEST_F(Reads, TheSandboxsIdentityHasNoCapability) {
  if (!is_root()) GTEST_SKIP() << "an ordinary user changes no identity";
  const auto effective = [] {
    const std::string status = slurp("/proc/thread-self/status");
    const size_t at = status.find("CapEff:");
    return status.substr(at, status.find('\n', at) - at);
  };
  const std::string before = effective(), none = "CapEff:\t0000000000000000";
  EXPECT_NE(before, none);
  {
    const FsIdentity as_tenant(tenant());
    EXPECT_FALSE(as_tenant.error());
    EXPECT_EQ(effective(), none);
    {
      const FsIdentity again(tenant());
      EXPECT_FALSE(again.error());
      EXPECT_EQ(effective(), none);
    }
    {
      const FsIdentity as_host = FsIdentity::of_this_process(true);
      EXPECT_FALSE(as_host.error());
      EXPECT_EQ(effective(), before);
      EXPECT_TRUE(Fd(::open((sandbox() + "/staging/files").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
    }
    EXPECT_EQ(effective(), none);
  }
  EXPECT_EQ(effective(), before);
}

TEST_F(Reads, SixtyFourMebibytesGoRoundByteForByte) {
  const std::string content = noise(64 << 20);
  const auto written = write("big", content);
  ASSERT_OK(written);
  EXPECT_EQ(*written, content.size());
  EXPECT_TRUE(slurp(inside("big")) == content);
  EXPECT_TRUE(*read("big") == content);
}

TEST_F(Reads, WorkOverASocketToo) {
  const std::string content = noise(1 << 20);
  plant("f", content);
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  Fd near(pair[0]), far(pair[1]);
  std::string got;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t n; (n = ::read(far.get(), buffer, sizeof buffer)) > 0;)
      got.append(buffer, static_cast<size_t>(n));
  });
  auto request = request_for("f");
  request.fd = near.get();
  EXPECT_OK(files().read(request, -1));
  near.reset();
  reader.join();
  EXPECT_TRUE(got == content);
}

TEST_F(Reads, OfAnythingButAFileAreTypedErrorsAtOnce) {
  ASSERT_EQ(::mkfifo(inside("fifo").c_str(), 0666), 0);
  ASSERT_EQ(::chmod(inside("fifo").c_str(), 0666), 0);
  directory("dir");
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, inside("sock").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const auto begin = Clock::now();
  EXPECT_STATUS(read("fifo"), ISOGATE_NOT_REGULAR);
  EXPECT_STATUS(write("fifo", "x"), ISOGATE_NOT_REGULAR);
  EXPECT_STATUS(write("fifo", "x", ISOGATE_FILE_APPEND), ISOGATE_NOT_REGULAR);
  EXPECT_STATUS(read("sock"), ISOGATE_NOT_REGULAR);
  EXPECT_STATUS(write("sock", "x"), ISOGATE_NOT_REGULAR);
  EXPECT_STATUS(read("dir"), ISOGATE_IS_DIRECTORY);
  EXPECT_STATUS(read("dir/"), ISOGATE_IS_DIRECTORY);
  EXPECT_STATUS(read(""), ISOGATE_IS_DIRECTORY);
  EXPECT_STATUS(read("."), ISOGATE_IS_DIRECTORY);
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_EQ(stat("fifo")->type, ISOGATE_ENTRY_OTHER);
}

TEST_F(Reads, OfDevicesAreRefusedUnopened) {
  link("/dev/zero", "zero");
  link("/dev/tty", "tty");
  link("/proc/kmsg", "kmsg");
  for (const char* path : {"zero", "tty", "kmsg"}) EXPECT_STATUS(read(path), ISOGATE_PERMISSION_DENIED);
  open(true);
  EXPECT_STATUS(read("/dev/zero", 0, 1, ISOGATE_SCOPE_SANDBOX), ISOGATE_NOT_REGULAR);
  EXPECT_STATUS(write("/dev/null", "x", 0, 0, ISOGATE_SCOPE_SANDBOX), ISOGATE_NOT_REGULAR);
  if (!is_root()) GTEST_SKIP() << "making a device node in the workspace needs root";
  if (::mknod(inside("node").c_str(), S_IFCHR | 0666, 0x0105) != 0)
    GTEST_SKIP() << "cannot make a device node: " << std::strerror(errno);
  EXPECT_STATUS(read("node"), ISOGATE_NOT_REGULAR);
}

TEST_F(Reads, OfASparseTebibyteTakeOnlyWhatWasAsked) {
  plant("sparse", "");
  ASSERT_EQ(::truncate(inside("sparse").c_str(), 1LL << 40), 0) << std::strerror(errno);
  EXPECT_EQ(stat("sparse")->size, 1ULL << 40);
  EXPECT_EQ(*read("sparse", (1ULL << 40) - 3), std::string(3, '\0'));
  EXPECT_EQ(*read("sparse", 1ULL << 39, 4096), std::string(4096, '\0'));
}

TEST_F(Reads, StalledByTheirReaderAreCancelled) {
  plant("big", noise(8 << 20));
  Result<isogate_entry> result = Error{};
  EXPECT_LT(stalled(result, [](Pipe&, int cancel) { signal_event(cancel); }), 5s);
  EXPECT_STATUS(result, ISOGATE_CANCELLED);
}

TEST_F(Reads, EndWhenTheirReaderHasGone) {
  plant("big", noise(8 << 20));
  Result<isogate_entry> result = Error{};
  EXPECT_LT(stalled(result, [](Pipe& pipe, int) { pipe.read.reset(); }), 5s);
  EXPECT_STATUS(result, ISOGATE_CANCELLED);
}

TEST_F(Reads, OfAGrowingFileEndAtTheSizeItHad) {
  const std::string content = noise(4 << 20);
  plant("big", content);
  auto pipe = make_pipe();
  auto request = request_for("big");
  request.fd = pipe->write.get();
  Result<isogate_entry> entry = Error{};
  std::thread reader([&] {
    entry = files().read(request, -1);
    pipe->write.reset();
  });
  pollfd begun{pipe->read.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&begun, 1, 20'000), 1);
  const Fd grow(::open(inside("big").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  ASSERT_EQ(::write(grow.get(), content.data(), 4096), 4096);
  size_t total = 0;
  char buffer[65536];
  for (ssize_t got; (got = ::read(pipe->read.get(), buffer, sizeof buffer)) > 0;)
    total += static_cast<size_t>(got);
  reader.join();
  ASSERT_OK(entry);
  EXPECT_EQ(entry->size, content.size());
  EXPECT_EQ(total, content.size());
}

TEST_F(Reads, OfAShrinkingFileEndWhereItEndsAndSayItsSize) {
  plant("big", noise(4 << 20));
  Result<isogate_entry> result = Error{};
  stalled(result, [&](Pipe& pipe, int) {
    ASSERT_EQ(::truncate(inside("big").c_str(), 100), 0);
    char buffer[65536];
    ASSERT_GT(::read(pipe.read.get(), buffer, sizeof buffer), 0);
  });
  ASSERT_OK(result);
  EXPECT_EQ(result->size, 100U);
}

TEST_F(Reads, OfAFileUnderALeaseSayWhoHoldsIt) {
  plant("f", "hello");
  const auto before = ::signal(SIGIO, SIG_IGN);
  {
    const Fd holder(::open(inside("f").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::fcntl(holder.get(), F_SETLEASE, F_WRLCK), 0);
    const auto is_refused = [](const Error& error) {
      EXPECT_EQ(error.status, ISOGATE_RESOURCE_EXHAUSTED) << error.message;
      EXPECT_EQ(error.os_errno, EBUSY);
      EXPECT_NE(error.message.find("lease"), std::string::npos) << error.message;
    };
    const auto got = read("f");
    const auto appended = write("f", "more", ISOGATE_FILE_APPEND);
    ASSERT_FALSE(got);
    ASSERT_FALSE(appended);
    is_refused(got.error());
    is_refused(appended.error());
  }
  ::signal(SIGIO, before);
  EXPECT_EQ(*read("f"), "hello");
}

TEST_F(Reads, KeepToTheSandboxsIdentity) {
  if (!is_root()) GTEST_SKIP() << "identities change only as root";
  spill(inside("root-only"), "secret");
  ASSERT_EQ(::chmod(inside("root-only").c_str(), 0600), 0);
  EXPECT_STATUS(read("root-only"), ISOGATE_PERMISSION_DENIED);
  ASSERT_EQ(::mkdir(inside("root-dir").c_str(), 0700), 0);
  EXPECT_STATUS(list("root-dir"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(write("root-dir/x", "x"), ISOGATE_PERMISSION_DENIED);
}

}  // namespace
}  // namespace isogate::test
