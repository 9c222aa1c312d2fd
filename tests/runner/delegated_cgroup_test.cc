// What a process finds that systemd starts with Delegate=yes: it is in a marked cgroup2 below the root.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <functional>

#include "runner/cgroup/cgroup.h"
#include "tests/runner/box.h"

namespace isogate::test {
namespace {

constexpr uint64_t kControlledLimits =
    ISOGATE_CAP_LIMIT_MEMORY | ISOGATE_CAP_LIMIT_CPU | ISOGATE_CAP_LIMIT_PIDS;

class DelegatedCgroup : public ::testing::Test {
 protected:
  void SetUp() override {
    above_ = Cgroups::make("isogate-above", false);
    for (const uint32_t kind : {ISOGATE_LIMIT_MEMORY_BYTES, ISOGATE_LIMIT_CPU_MILLIS, ISOGATE_LIMIT_PIDS})
      if (!above_->in_leaf({{kind, 500}}))
        GTEST_SKIP() << "cgroup2 has not all controllers here: " << above_->missing();
    for (const auto& base : above_->bases())
      if (base->version() == 2) own_ = std::move(*base->make_group("service"));
    ASSERT_EQ(::fsetxattr(own_.get(), "user.delegate", "1", 1, 0), 0);
  }

  // What this returns in a process in there.
  std::string inside(const std::function<std::string()>& body) const {
    auto pipe = make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
      const auto entered = write_small_file(own_.get(), "cgroup.procs", "0");
      const std::string text = entered ? body() : entered.error().message;
      ::_exit(write_all(pipe->write.get(), text) ? 0 : 1);
    }
    pipe->write.reset();
    auto text = read_to_end(pipe->read.get(), 1 << 20, "the child");
    ::waitpid(child, nullptr, 0);
    return text ? *text : text.error().message;
  }

 private:
  std::unique_ptr<Cgroups> above_;
  Fd own_;
};

TEST_F(DelegatedCgroup, OfAProcessAloneLimitsItsPrograms) {
  EXPECT_EQ(inside([]() -> std::string {
              if (const auto left = leave_delegated_cgroup(); !left) return left.error().message;
              const auto runner = Runner::make({.group = "isogate-within"});
              Command command = shell(
                  "cd /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup) && cat memory.max cpu.max "
                  "pids.max");
              command.limits = {{ISOGATE_LIMIT_MEMORY_BYTES, 64u << 20},
                                {ISOGATE_LIMIT_CPU_MILLIS, 250},
                                {ISOGATE_LIMIT_PIDS, 20}};
              const auto output = run_captured(*runner, command);
              return output.ending ? output.out + output.err : output.ending.error().message;
            }),
            "67108864\n25000 100000\n20\n");
}

// With a controller in such a group, no process could start below it: programs would have no leaf, either.
TEST_F(DelegatedCgroup, WithAnotherProcessInItHasLeavesAndNamesWhatIsMissing) {
  const std::string found = inside([]() -> std::string {
    const pid_t other = ::fork();
    if (other == 0)
      for (;;) ::pause();
    const auto left = leave_delegated_cgroup();
    std::string text = left ? "it left" : left.error().message;
    const auto runner = Runner::make({.group = "isogate-within"});
    if ((runner->abilities().capabilities & kControlledLimits) != 0) text += "; it has limits";
    text += "; " + runner->abilities().tree_kill + "; " + runner->abilities().missing;
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
    return text;
  });
  EXPECT_TRUE(found.starts_with("other processes live in `")) << found;
  EXPECT_NE(found.find("; cgroup2 leaf; memory, cpu, pids: processes live in the cgroup above"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("Delegate=yes"), std::string::npos) << found;
}

}  // namespace
}  // namespace isogate::test
