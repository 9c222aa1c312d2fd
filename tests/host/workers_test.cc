#include "gateway/host/workers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <thread>

namespace isogate {
namespace {

// Its own front, and workers whose calls last as long as the test wants.
class WorkersTest : public testing::Test {
 protected:
  WorkersTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    front_.reset(ends[0]);
    host_.reset(ends[1]);
    workers_ = std::make_unique<Workers>(
        host_.get(), 64, Workers::Work{[this](ipc::Received) { return serve(); }, [](const Error&) {}});
    EXPECT_TRUE(workers_->start().ok());
  }
  ~WorkersTest() override {
    release();
    ::shutdown(host_.get(), SHUT_RD);
    EXPECT_TRUE(workers_->wait(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
  }

  bool serve() {
    std::unique_lock lock(mutex_);
    ++running_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    --running_;
    ++served_;
    changed_.notify_all();
    return true;
  }
  void send(size_t count) {
    for (size_t i = 0; i < count; ++i)
      ASSERT_TRUE(ipc::send_record(front_.get(), "call", {}, ipc::Wait::kBlock).ok());
  }
  void hold() {
    std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  bool wait_until(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), holds);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  size_t running_ = 0, served_ = 0;
  Fd front_, host_;
  std::unique_ptr<Workers> workers_;
};

TEST_F(WorkersTest, AsManyRunAsCallsCome) {
  hold();
  send(30);
  EXPECT_TRUE(wait_until([this] { return running_ == 30; })) << running_;
  release();
  EXPECT_TRUE(wait_until([this] { return served_ == 30; }));
}

// The surplus workers of a busy time end once, never those that must stay.
TEST_F(WorkersTest, SomebodyStaysAfterABusyTime) {
  hold();
  send(30);
  ASSERT_TRUE(wait_until([this] { return running_ == 30; }));
  release();
  ASSERT_TRUE(wait_until([this] { return served_ == 30; }));
  workers_->trim();
  size_t sent = 30;
  for (int round = 0; round < 6; ++round) {
    workers_->trim();
    for (int i = 0; i < 40; ++i) {
      send(1);
      ++sent;
      ASSERT_TRUE(wait_until([&] { return served_ == sent; })) << "no worker is left to take a call";
    }
    EXPECT_GE(workers_->count(), Workers::kSpare);
  }
  EXPECT_LE(workers_->count(), Workers::kSpare + 2) << "surplus workers stay";
}

constexpr int kNoSuchLimit = 77;

// No thread can be started when the last idle worker takes a call, but later one can. In a process that is
// not root's, which RLIMIT_NPROC does not bind.
int serve_after_a_shortage() {
  ::alarm(30);  // ends a wait for ever
  constexpr uid_t kNobody = 65534;
  if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return kNoSuchLimit;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  const Fd front(ends[0]), host(ends[1]);
  std::atomic<size_t> running = 0;
  std::atomic<bool> over = false;
  const auto serve = [&](ipc::Received) {
    for (++running; !over;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  };
  Workers workers(host.get(), 8, Workers::Work{serve, [](const Error&) {}});
  if (!workers.start().ok()) return 2;
  const auto run = [&](size_t count) {
    while (running < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const auto send = [&] { return ipc::send_record(front.get(), "call", {}, ipc::Wait::kBlock).ok(); };

  rlimit before{};
  ::getrlimit(RLIMIT_NPROC, &before);
  const rlimit none{1, before.rlim_max};
  ::setrlimit(RLIMIT_NPROC, &none);
  for (size_t i = 0; i < Workers::kSpare; ++i)
    if (!send()) return 3;
  run(Workers::kSpare);
  ::setrlimit(RLIMIT_NPROC, &before);
  const bool refused = workers.count() == Workers::kSpare;

  workers.trim();
  if (!send()) return 4;
  run(Workers::kSpare + 1);
  over = true;
  ::shutdown(host.get(), SHUT_RD);
  if (!workers.wait(std::chrono::steady_clock::now() + std::chrono::seconds(20))) return 5;
  return refused ? 0 : kNoSuchLimit;
}

TEST(Workers, OneStartsLaterWhereNoneCouldBeStarted) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(serve_after_a_shortage());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoSuchLimit) GTEST_SKIP() << "RLIMIT_NPROC binds nobody here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace isogate
