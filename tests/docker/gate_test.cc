#include "plugins/docker/container/gate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>

#include "plugins/docker/container/profile.h"
#include "tests/support/program.h"

namespace isogate::docker {
namespace {

using std::chrono::milliseconds;

constexpr isogate_call kGateCall{sizeof(isogate_call), -1, INT64_MAX, {}};

int dial(int directory) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(directory) + "/" + kSocketName;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

struct GateTest : testing::Test {
  test::TemporaryDirectory place;
  Fd directory{::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};

  // A process that connects and sends "hi".
  pid_t caller() const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int fd = dial(directory.get());
      if (fd < 0 || ::write(fd, "hi", 2) != 2) ::_exit(1);
      ::pause();
    }
    return pid;
  }
  static void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
};

TEST_F(GateTest, LetsOnlyTheProcessInThatWasNamed) {
  Gate gate(directory.get());
  const int stranger = dial(directory.get());
  ASSERT_GE(stranger, 0);
  const pid_t pid = caller();
  const Fd peer = gate.accept(pid, milliseconds(5000), sdk::Call(kGateCall));
  ASSERT_TRUE(peer);
  char text[2];
  EXPECT_EQ(::read(peer.get(), text, 2), 2);
  EXPECT_EQ(gate.strangers(), 1u);
  char nothing = 0;
  EXPECT_EQ(::read(stranger, &nothing, 1), 0) << "its connection was closed";
  ::close(stranger);
  end(pid);
}

TEST_F(GateTest, AStrangerGetsNothingAndTheWaitEnds) {
  Gate gate(directory.get());
  const int stranger = dial(directory.get());
  EXPECT_FALSE(gate.accept(1, milliseconds(50), sdk::Call(kGateCall)));
  ::close(stranger);
}

// Another one waits at every look, as of a program that connects without end.
TEST_F(GateTest, StrangersThatKeepComingDoNotProlongTheWait) {
  Gate gate(directory.get());
  const Fd strangers[] = {Fd(dial(directory.get())), Fd(dial(directory.get())), Fd(dial(directory.get()))};
  for (const Fd& each : strangers) ASSERT_TRUE(each);
  EXPECT_FALSE(gate.accept(1, milliseconds(0), sdk::Call(kGateCall)));
  EXPECT_EQ(gate.strangers(), 1u);
}

TEST_F(GateTest, WaitingEndsWhenTheCallIsCancelled) {
  Gate gate(directory.get());
  const Fd cancel = std::move(*make_event());
  signal_event(cancel.get());
  const isogate_call call{sizeof(isogate_call), cancel.get(), INT64_MAX, {}};
  EXPECT_THROW((void)gate.accept(1, milliseconds(5000), sdk::Call(call)), sdk::Error);
}

TEST_F(GateTest, ListensOnlyAsLongAsItLives) {
  { const Gate gate(directory.get()); }
  EXPECT_LT(dial(directory.get()), 0);
  const Gate first(directory.get());
  const Gate second(directory.get());  // replaces what a crash left
  EXPECT_GE(dial(directory.get()), 0);
}

TEST_F(GateTest, ALinkThatWasPlantedIsReplacedNotFollowed) {
  test::TemporaryDirectory elsewhere;
  ASSERT_EQ(::symlinkat((elsewhere.path() + "/target").c_str(), directory.get(), kSocketName), 0);
  const Gate gate(directory.get());
  struct stat info {};
  EXPECT_NE(::stat((elsewhere.path() + "/target").c_str(), &info), 0);
  ASSERT_EQ(::fstatat(directory.get(), kSocketName, &info, AT_SYMLINK_NOFOLLOW), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
}

TEST_F(GateTest, LeavesTheSocketOfTheOneThatTookItsPlace) {
  auto old = std::make_unique<Gate>(directory.get());
  Gate next(directory.get());
  old.reset();
  const pid_t pid = caller();
  EXPECT_TRUE(next.accept(pid, milliseconds(5000), sdk::Call(kGateCall)));
  end(pid);
}

}  // namespace
}  // namespace isogate::docker
