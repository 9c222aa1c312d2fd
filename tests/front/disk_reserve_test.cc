#include "gateway/front/state/disk_reserve.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>

#include "gateway/front/state/state.h"

namespace isogate::front {
namespace {

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// A file system of 64 MiB.
class SmallDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount a file system";
    place_ = ::testing::TempDir() + "isogate-disk-XXXXXX";
    ASSERT_NE(::mkdtemp(place_.data()), nullptr);
    if (::mount("none", place_.c_str(), "tmpfs", 0, "size=64m") != 0)
      GTEST_SKIP() << "no mount: " << std::strerror(errno);
    mounted_ = true;
    state_ = open();
  }
  void TearDown() override {
    state_.reset();
    if (mounted_) ::umount(place_.c_str());
    if (!place_.empty()) std::filesystem::remove(place_);
  }
  std::unique_ptr<State> open() {
    auto state = State::open(place_ + "/front/state.db");
    EXPECT_TRUE(state.ok()) << (state.ok() ? "" : state.error().message);
    return state.ok() ? std::move(*state) : nullptr;
  }
  // Fills it.
  void fill() {
    const Fd file(::open((place_ + "/all").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string block(1 << 20, 'x');
    size_t size = block.size();
    while (size > 0)
      if (::write(file.get(), block.data(), size) <= 0) size /= 2;
    ASSERT_EQ(errno, ENOSPC);
  }

  std::string place_;
  bool mounted_ = false;
  std::unique_ptr<State> state_;
};

TEST_F(SmallDisk, ThatIsFullStillTakesTheRecordOfWhatRuns) {
  fill();
  for (int i = 0; i < 200; ++i) {
    const std::string id = "exec-" + std::to_string(i);
    state_->exec_opened(
        {id, "isg-1", "local", "docker", "0123456789abcdef", std::string(500, 'c'), now_ms(), std::nullopt});
    ExecOutcome outcome;
    outcome.ended_ms = now_ms();
    outcome.outcome = Outcome::kExited;
    outcome.exit_code = 0;
    state_->exec_closed(id, outcome);
    const auto flushed = state_->flush();
    ASSERT_TRUE(flushed.ok()) << i << ": " << flushed.error().message;
  }
  state_.reset();
  std::filesystem::remove(place_ + "/all");
  state_ = open();
}

}  // namespace
}  // namespace isogate::front
