// A start that does not come to its exec ends with its cancellation.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "tests/runner/box.h"

namespace isogate::test {
namespace {

class RescueTest : public RunnerTest {};
INSTANTIATE_TEST_SUITE_P(Each, RescueTest, testing::Values(Kind::leaf, Kind::supervisor), name_of);

// A directory that takes milliseconds to be resolved: forty links, each a long way round.
class SlowDirectory {
 public:
  SlowDirectory() {
    std::string pattern = "/tmp/isogate-slow-XXXXXX";
    path = ::mkdtemp(pattern.data());
    ::chmod(path.c_str(), 0755);
    std::string round;
    for (int i = 0; i < 2000; ++i) round += "./";
    for (int i = 1; i < kLinks; ++i) {
      const std::string next = i + 1 == kLinks ? "nowhere" : std::to_string(i + 1);
      EXPECT_EQ(::symlink((round + next).c_str(), (path + "/" + std::to_string(i)).c_str()), 0);
    }
  }
  ~SlowDirectory() { [[maybe_unused]] const int done = std::system(("rm -rf " + path).c_str()); }
  SlowDirectory(const SlowDirectory&) = delete;
  SlowDirectory& operator=(const SlowDirectory&) = delete;
  std::string path;

 private:
  static constexpr int kLinks = 40;
};

TEST_P(RescueTest, a_slow_path_does_not_outlast_its_cancellation) {
  const SlowDirectory slow;
  Command command;
  command.argv = {"no-such-program"};
  std::string search;
  for (int i = 0; i < 3000; ++i) search += slow.path + "/1:";
  command.env = {{"PATH", search}};
  auto cancel = make_event();
  ASSERT_TRUE(cancel.ok());
  command.cancel_fd = cancel->get();
  const auto start = std::chrono::steady_clock::now();
  std::jthread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    signal_event(cancel->get());
  });
  const Output output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_TRUE(output.ending->killed) << "the search ended by itself: it was not slow";
  EXPECT_LT(seconds_since(start), 2.0);
}

TEST_P(RescueTest, a_program_killed_at_its_cancellation_was_cancelled) {
  auto cancel = make_event();
  ASSERT_TRUE(cancel.ok());
  Command command = shell("kill -KILL $$");
  command.cancel_fd = cancel->get();
  const Output by_itself = run_captured(runner(), command);
  ASSERT_TRUE(by_itself.ending.ok());
  EXPECT_FALSE(by_itself.ending->killed);
  EXPECT_EQ(by_itself.ending->term_signal, 9);
}

}  // namespace
}  // namespace isogate::test
