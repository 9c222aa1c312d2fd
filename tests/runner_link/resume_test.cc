// Sessions that outlive their streams, against the real program.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>

#include "calls.h"
#include "isogate/runner_resume.h"
#include "served.h"

namespace isogate::testing {
namespace {

using namespace std::chrono_literals;

std::string read_whole(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Bytes that repeat nowhere, so that a missing, doubled or moved one is noticed.
std::string bytes_of(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes;
  while (bytes.size() < size) {
    const uint64_t next = random();
    bytes.append(reinterpret_cast<const char*>(&next), sizeof next);
  }
  return bytes.substr(0, size);
}

sdk::ResumeOptions options_of(uint8_t owner, std::chrono::milliseconds patience = 20s,
                              std::chrono::seconds grace = 60s) {
  sdk::ResumeOptions options;
  options.owner[0] = owner;
  options.patience = patience;
  options.grace = grace;
  return options;
}

class Resume : public ::testing::Test {
 protected:
  // A shell that has written its pid into the file and sleeps.
  struct Sleeper {
    Sleeper(Resume& test, sdk::RunnerLink& link, const std::string& name)
        : exec({"/bin/sh", "-c", "echo $$ > " + name + "; sleep 100"}), outcome(exec.start(link)) {
      const std::string file = test.served.workspace() + "/" + name;
      EXPECT_TRUE(eventually(10, [&] { return read_whole(file).ends_with("\n"); }));
      pid = std::stoi("0" + read_whole(file));
    }
    ~Sleeper() { exec.ask.cancel(); }
    [[nodiscard]] bool runs() const { return pid > 0 && ::kill(pid, 0) == 0; }
    bool goes_on(std::chrono::milliseconds time) {
      return outcome.wait_for(time) == std::future_status::timeout;
    }
    Exec exec;
    std::future<Outcome> outcome;
    pid_t pid = -1;
  };

  // Through a program and back, while streams are cut.
  void pass_through(sdk::RunnerLink& link, size_t size, uint64_t seed) {
    const std::string bytes = bytes_of(size, seed);
    Pipe in, out;
    Exec exec({"cat"});
    exec.in = in.reader;
    exec.out = out.writer;
    auto writer = std::async(std::launch::async, [&] { in.write(bytes), in.close_writer(); });
    auto reader = std::async(std::launch::async, [&] { return out.read(size); });
    const Outcome outcome = exec.run(link);
    EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
    EXPECT_EQ(outcome.exec.exit_code, 0);
    if (outcome.status != ISOGATE_OK) in.close_reader();
    writer.get();
    out.close_writer();
    EXPECT_TRUE(reader.get() == bytes);
  }

  Served served;
};

TEST_F(Resume, WithoutALossItIsALinkAsAnyOther) {
  const auto link = served.link();
  pass_through(*link, 1 << 20, 1);
  EXPECT_EQ(served.dialled, 1);
  EXPECT_TRUE(link->ping(5s));
}

TEST_F(Resume, BytesArriveOnceHoweverOftenStreamsAreCut) {
  served.least = 1'000;
  served.most = 400'000;
  const auto link = served.link(options_of(1), 11);
  pass_through(*link, 6 << 20, 2);
  EXPECT_GT(served.dialled, 20);
}

TEST_F(Resume, StreamsCutWhileTheyAreResumedLoseNothing) {
  served.least = 1;
  served.most = 3'000;
  const auto link = served.link(options_of(1), 12);
  pass_through(*link, 40'000, 3);
  EXPECT_GT(served.dialled, 20);
}

TEST_F(Resume, ManyCallsGoOnTogether) {
  served.least = 20'000;
  served.most = 2'000'000;
  const auto link = served.link(options_of(1), 13);
  std::vector<std::thread> callers;
  for (uint64_t i = 0; i < 8; ++i) callers.emplace_back([&, i] { pass_through(*link, 1 << 20, 100 + i); });
  for (auto& each : callers) each.join();
  EXPECT_GT(served.dialled, 5);
}

// As with a runner that was just started on a busy machine.
TEST_F(Resume, TheFirstStreamHasATimeOfItsOwn) {
  sdk::ResumeOptions options = options_of(1);
  ASSERT_EQ(::kill(served.pid(), SIGSTOP), 0);
  options.first = options.attempt = 100ms;
  EXPECT_THROW(served.link(options), sdk::Error);
  options.first = 20s;
  std::thread later([this] {
    std::this_thread::sleep_for(500ms);
    ::kill(served.pid(), SIGCONT);
  });
  const auto link = served.link(options);
  later.join();
  EXPECT_TRUE(link->ping(5s));
}

TEST_F(Resume, OutputOfAnOutageComesAfterIt) {
  const auto link = served.link(options_of(1));
  Pipe out;
  Exec exec({"/bin/sh", "-c", "echo before; while [ ! -e go ]; do sleep 0.05; done; seq 300000; echo after"});
  exec.out = out.writer;
  auto outcome = exec.start(*link);
  EXPECT_EQ(out.read(7), "before\n");
  served.reachable = false;
  served.cut();
  std::ofstream(served.workspace() + "/go") << "\n";
  EXPECT_EQ(outcome.wait_for(1s), std::future_status::timeout);
  served.reachable = true;
  auto reader = std::async(std::launch::async, [&] { return out.read(SIZE_MAX); });
  EXPECT_EQ(outcome.get().status, ISOGATE_OK);
  out.close_writer();
  const std::string all = reader.get();
  EXPECT_EQ(all.size(), 1'988'895u + 6);
  EXPECT_TRUE(all.ends_with("300000\nafter\n"));
}

TEST_F(Resume, MoreThanIsKeptMakesProgramsWait) {
  const auto link = served.link(options_of(1));
  served.reachable = false;
  std::vector<std::unique_ptr<Pipe>> outs;
  std::vector<std::unique_ptr<Exec>> execs;
  std::vector<std::future<Outcome>> outcomes;
  for (int i = 0; i < 8; ++i) {
    outs.push_back(std::make_unique<Pipe>());
    execs.push_back(std::make_unique<Exec>(std::vector<std::string>{
        "/bin/sh", "-c",
        "n=0; echo up; while [ $n -lt 60 ]; do head -c 32768 /dev/zero; n=$((n+1)); echo $n > count" +
            std::to_string(i) + "; done"}));
    execs.back()->out = outs.back()->writer;
    outcomes.push_back(execs.back()->start(*link));
    EXPECT_EQ(outs.back()->read(3), "up\n");
  }
  served.cut();
  std::this_thread::sleep_for(2s);
  size_t written = 0;
  for (int i = 0; i < 8; ++i)
    written += 32768 * std::stoul("0" + read_whole(served.workspace() + "/count" + std::to_string(i)));
  EXPECT_LT(written, size_t{8} * 60 * 32768) << "all was kept";
  served.reachable = true;
  for (size_t i = 0; i < 8; ++i) {
    auto reader = std::async(std::launch::async, [&] { return outs[i]->read(SIZE_MAX).size(); });
    EXPECT_EQ(outcomes[i].get().status, ISOGATE_OK);
    outs[i]->close_writer();
    EXPECT_EQ(reader.get(), 60u * 32768);
  }
}

TEST_F(Resume, WhatIsKeptInAnOutageIsWholeFrames) {
  const Ask ask;
  const auto stream =
      sdk::resumable_stream([this](const sdk::Call&) { return served.dial(); }, options_of(1), ask.call);
  served.reachable = false;
  served.cut();
  std::string ignored(1000, '\0');
  ASSERT_TRUE(eventually(5, [&] {
    [[maybe_unused]] const ssize_t size = stream->read_some(ignored.data(), ignored.size());
    return stream->is_away();
  }));
  const std::string frame(60'000, 'x');
  size_t kept = 0;
  for (ssize_t sent = 0; (sent = stream->write_some(frame.data(), frame.size())) > 0;
       kept += static_cast<size_t>(sent))
    ASSERT_EQ(sent, 60'000);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GE(kept, ISOGATE_RUNNER_KEPT);
  pollfd room{stream->room_fd(), POLLOUT, 0};
  EXPECT_EQ(::poll(&room, 1, 0), 0);
  size_t small = 0;
  while (stream->write_some(frame.data(), 12) == 12) small += 12;
  EXPECT_GT(small, 0u) << "a small frame, such as CANCEL, waits for room";
  EXPECT_LT(kept + small, size_t{2} * ISOGATE_RUNNER_KEPT);
}

TEST_F(Resume, ACallCancelledInAnOutageCostsNoOther) {
  served.patience.killed = 300ms;
  const auto link = served.link(options_of(1));
  Sleeper cancelled(*this, *link, "cancelled"), other(*this, *link, "other");
  served.reachable = false;
  served.cut();
  EXPECT_TRUE(cancelled.goes_on(300ms));
  cancelled.exec.ask.cancel();
  EXPECT_EQ(cancelled.outcome.wait_for(5s), std::future_status::ready);
  EXPECT_EQ(cancelled.outcome.get().status, ISOGATE_LOST);
  EXPECT_TRUE(cancelled.runs()) << "the runner could not be told";
  served.reachable = true;
  EXPECT_TRUE(eventually(5, [&] { return !cancelled.runs(); }));
  EXPECT_EQ(Exec({"true"}).run(*link).status, ISOGATE_OK);
  EXPECT_TRUE(other.goes_on(0ms) && other.runs());
}

TEST_F(Resume, AnotherRunnerKnowsNoSuchSession) {
  const auto link = served.link(options_of(1));
  Sleeper sleeper(*this, *link, "pid");
  served.kill();
  served.start();
  EXPECT_EQ(sleeper.outcome.get().status, ISOGATE_LOST);
  EXPECT_FALSE(link->alive());
  EXPECT_EQ(Exec({"true"}).run(*link).status, ISOGATE_UNAVAILABLE);
}

TEST_F(Resume, WhatRunsEndsWithItsGrace) {
  const auto link = served.link(options_of(1, 120s, 5s));
  Sleeper sleeper(*this, *link, "pid");
  served.reachable = false;
  served.cut();
  EXPECT_TRUE(sleeper.goes_on(500ms) && sleeper.runs());
  EXPECT_TRUE(eventually(20, [&] { return !sleeper.runs(); }));
  EXPECT_TRUE(sleeper.goes_on(0ms));
  served.reachable = true;
  EXPECT_EQ(sleeper.outcome.get().status, ISOGATE_LOST);
}

TEST_F(Resume, AnOutageLongerThanItsPatienceIsALoss) {
  const auto link = served.link(options_of(1, 1s));
  Sleeper sleeper(*this, *link, "pid");
  served.reachable = false;
  const auto since = std::chrono::steady_clock::now();
  served.cut();
  EXPECT_EQ(sleeper.outcome.get().status, ISOGATE_LOST);
  EXPECT_GE(std::chrono::steady_clock::now() - since, 900ms);
  EXPECT_LT(std::chrono::steady_clock::now() - since, 15s) << "by default 20 s";
}

TEST_F(Resume, ARunnerThatIsGoneIsALossAtOnce) {
  const auto link = served.link(options_of(1));
  Sleeper sleeper(*this, *link, "pid");
  served.is_there = false;
  served.cut();
  EXPECT_EQ(sleeper.outcome.wait_for(5s), std::future_status::ready);
  EXPECT_EQ(sleeper.outcome.get().status, ISOGATE_LOST);
}

TEST_F(Resume, ANewSessionEndsOnlyThoseOfItsOwner) {
  const auto mine = served.link(options_of(1)), others = served.link(options_of(2));
  Sleeper old(*this, *mine, "old"), other(*this, *others, "other");
  served.reachable = false;
  served.cut();
  EXPECT_TRUE(old.goes_on(300ms) && old.runs());
  served.reachable = true;
  const auto again = served.link(options_of(1));
  EXPECT_TRUE(eventually(5, [&] { return !old.runs(); }));
  EXPECT_EQ(old.outcome.get().status, ISOGATE_LOST);
  EXPECT_EQ(Exec({"true"}).run(*again).status, ISOGATE_OK);
  EXPECT_TRUE(other.goes_on(300ms) && other.runs());
}

TEST_F(Resume, AGoodbyeEndsWhatRuns) {
  const auto link = served.link(options_of(1));
  Sleeper sleeper(*this, *link, "pid");
  link->close("closed");
  EXPECT_EQ(sleeper.outcome.get().status, ISOGATE_LOST);
  EXPECT_TRUE(eventually(5, [&] { return !sleeper.runs(); }));
}

TEST_F(Resume, AnIdleLinkWhoseStreamIsLostIsNotAlive) {
  const auto link = served.link(options_of(1));
  EXPECT_EQ(Exec({"true"}).run(*link).status, ISOGATE_OK);
  EXPECT_TRUE(link->alive());
  served.cut();
  EXPECT_TRUE(eventually(5, [&] { return !link->alive(); }));
}

TEST_F(Resume, AnIdleLinkWhoseStreamIsDialledAgainIsAlive) {
  const auto link = served.link(options_of(1));
  EXPECT_EQ(Exec({"true"}).run(*link).status, ISOGATE_OK);
  served.reachable = false;
  served.cut();
  EXPECT_TRUE(eventually(5, [&] { return !link->ping(300ms); }));
  EXPECT_TRUE(link->alive());
  served.reachable = true;
  EXPECT_TRUE(link->ping(5s)) << link->why();
}

}  // namespace
}  // namespace isogate::testing
