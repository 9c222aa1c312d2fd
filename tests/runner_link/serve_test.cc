// Which peers an `isogate-runner serve` accepts, and how it handles what they send.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "calls.h"
#include "isogate/runner_resume.h"
#include "runner/agent/link/listener.h"
#include "served.h"
#include "tests_dirs.h"

namespace isogate::testing {
namespace {

using namespace std::chrono_literals;

class Serve : public ::testing::Test {
 protected:
  // Connects from this process: the connection ends at once without a byte.
  bool is_turned_away() const {
    sockaddr_un address;
    const unsigned size = agent::address_of(served.listener(), address);
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return false;
    pollfd slot{socket.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&slot, 1, 5'000) == 1 && ::recv(socket.get(), &byte, 1, 0) <= 0;
  }
  std::string said_by_program(const std::string& script) {
    Pipe out;
    Exec exec({"/bin/sh", "-c", script});
    exec.out = out.writer;
    EXPECT_EQ(exec.run(*link).status, ISOGATE_OK);
    return out.read_all();
  }
  // The response to these first bytes, up to the end of the stream.
  std::string answer_to(const std::string& words) {
    const auto stream = served.dial();
    EXPECT_EQ(stream->write_some(words.data(), words.size()), static_cast<ssize_t>(words.size()));
    std::string answer;
    EXPECT_TRUE(eventually(10, [&] {
      char bytes[256];
      const ssize_t got = stream->read_some(bytes, sizeof bytes);
      if (got > 0) answer.append(bytes, static_cast<size_t>(got));
      return got == 0;
    }));
    return answer;
  }
  static isogate_runner_resumed parsed(const std::string& answer) {
    isogate_runner_resumed out{};
    EXPECT_EQ(answer.size(), sizeof out);
    answer.copy(reinterpret_cast<char*>(&out), sizeof out);
    return out;
  }
  static std::string words(uint32_t version, uint8_t session) {
    isogate_runner_resume said{};
    said.magic = ISOGATE_RUNNER_RESUME_MAGIC;
    said.version = version;
    said.session[0] = session;
    return {reinterpret_cast<const char*>(&said), sizeof said};
  }

  Served served;
  std::shared_ptr<sdk::RunnerLink> link = served.link();
};

TEST_F(Serve, WhoHasAnotherParentIsTurnedAway) { EXPECT_TRUE(is_turned_away()); }

TEST_F(Serve, AnotherUserIsTurnedAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to run as another user";
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(61000) == 0 && is_turned_away() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Serve, WhatASessionRunsCannotAttach) {
  const std::string attach = ISOGATE_BUILD_DIR "/bin/isogate-runner attach --listener " + served.listener() +
                             " --server " + std::to_string(served.pid()) + " 2>&1; echo $?";
  const std::string said = said_by_program(attach);
  EXPECT_TRUE(said.ends_with("the server refuses this process\n1\n")) << said;
}

TEST_F(Serve, NothingIsGivenToAnotherServer) {
  int status = -1;
  const pid_t child =
      start({ISOGATE_BUILD_DIR "/bin/isogate-runner", "attach", "--listener", served.listener()}, -1, -1);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(Serve, MalformedResumesAreRefusedAndHarmNobody) {
  EXPECT_EQ(parsed(answer_to(std::string(sizeof(isogate_runner_resume), '\xff'))).status,
            ISOGATE_RUNNER_REFUSED);
  EXPECT_EQ(parsed(answer_to(words(99, 0))).status, ISOGATE_RUNNER_REFUSED);
  EXPECT_EQ(parsed(answer_to(words(ISOGATE_RUNNER_RESUME_VERSION, 7))).status, ISOGATE_RUNNER_UNKNOWN);
  EXPECT_EQ(said_by_program("echo still here"), "still here\n");
  EXPECT_EQ(served.dialled, 4);
}

// As one that asks a slow API server first, within its own ten seconds.
TEST_F(Serve, AClientThatChecksForSecondsBeforeItsFirstByteIsServed) {
  const auto stream = served.dial();
  std::this_thread::sleep_for(7s);
  const std::string said = words(ISOGATE_RUNNER_RESUME_VERSION, 7);
  ASSERT_EQ(stream->write_some(said.data(), said.size()), static_cast<ssize_t>(said.size()));
  isogate_runner_resumed answer{};
  EXPECT_TRUE(eventually(10, [&] {
    return stream->read_some(reinterpret_cast<char*>(&answer), sizeof answer) == sizeof answer;
  }));
  EXPECT_EQ(answer.status, ISOGATE_RUNNER_UNKNOWN) << "it was read";
}

TEST_F(Serve, ThereAreOnlySoManySessions) {
  std::vector<std::shared_ptr<sdk::RunnerLink>> others;
  sdk::ResumeOptions options;
  for (uint8_t owner = 1; owner < ISOGATE_RUNNER_MAX_SESSIONS; ++owner) {
    options.owner[0] = owner;
    others.push_back(served.link(options));
  }
  options.owner[0] = 200;
  EXPECT_THROW(served.link(options), sdk::Error);
  others.pop_back();
  EXPECT_TRUE(eventually(10, [&] {
    try {
      others.push_back(served.link(options));
      return true;
    } catch (const sdk::Error&) {
      return false;
    }
  }));
  EXPECT_EQ(said_by_program("echo still here"), "still here\n");
}

}  // namespace
}  // namespace isogate::testing
