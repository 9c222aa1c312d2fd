// (step that fails) × (next call): each system call of each step fails once, and the next call is an error or
// has the promised isolation, never less.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/local/injector.h"
#include "tests/local/plugin.h"

#ifndef ISOGATE_TESTED_PLUGIN
#define ISOGATE_TESTED_PLUGIN "local"
#endif

namespace isogate::test {
namespace {

const bool kEnclosed = std::string(ISOGATE_TESTED_PLUGIN) == "namespace";
constexpr int kErrors[] = {EPERM, ENOSYS};
constexpr int kMostPoints = 60;  // calls of one step, evenly spread

constexpr const char* kLook =
    "cd /proc/self/ns; for n in mnt pid net ipc uts cgroup; do readlink $n; done; "
    "while read -r k v r; do case $k in NoNewPrivs:|CapEff:|CapBnd:|Seccomp_filters:|Uid:) echo $k $v;; "
    "esac; "
    "done </proc/self/status";

std::string link_of(const char* name) {
  std::error_code none;
  return std::filesystem::read_symlink(std::string("/proc/self/ns/") + name, none).string();
}

class CloseFaults : public Local {
 protected:
  // How many filters a program has: its own in addition to those of this thread.
  static std::string filters() {
    std::ifstream status("/proc/thread-self/status");
    const std::string key = "Seccomp_filters:";
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(key)) return std::to_string(std::stoi(line.substr(key.size())) + 1);
    return "";
  }

  // The output of a program that ran: nothing in it belongs to this host.
  void expect_isolated(const Ran& ran, const Box& box, bool whole) {
    if (!kEnclosed) return;
    EXPECT_NE(ran.result.flags & ISOGATE_RESULT_PROVEN, 0u) << at_;
    EXPECT_EQ(ran.result.isolation, ISOGATE_ISOLATION_NAMESPACE) << at_;
    for (const char* name : {"mnt", "pid", "net", "ipc", "uts", "cgroup"})
      EXPECT_EQ(ran.out.find(host_.at(name)), std::string::npos) << at_ << ": this host's " << name;
    const auto said = [&](const std::string& key) -> std::string {
      const size_t found = ran.out.find(key + ": ");
      if (found == std::string::npos) return "";
      return ran.out.substr(found + key.size() + 2, ran.out.find('\n', found) - found - key.size() - 2);
    };
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"NoNewPrivs", "1"},
                                     {"CapEff", "0000000000000000"},
                                     {"CapBnd", "0000000000000000"},
                                     {"Uid", std::to_string(box.info.uid)}})
      EXPECT_TRUE(said(key) == value || (!whole && said(key).empty())) << at_ << ": " << key << "\n"
                                                                       << ran.out;
    EXPECT_TRUE(said("Seccomp_filters") == filters_ || (!whole && said("Seccomp_filters").empty()))
        << at_ << ": not " << filters_ << " filters\n"
        << ran.out;
    EXPECT_TRUE(!whole || std::count(ran.out.begin(), ran.out.end(), '\n') >= 10)
        << at_ << ran.out << ran.err;
  }

  // Without faults: each call works, and where it should.
  void expect_works(Box& box) {
    ASSERT_TRUE(box.it != nullptr || box.open(box.spec())) << at_ << ": " << box.error;
    EXPECT_EQ((box.info.flags & ISOGATE_SANDBOX_FRESH) != 0, kEnclosed) << at_;
    EXPECT_EQ(box.evidence(), ISOGATE_OK) << at_ << ": " << box.error;
    const Ran ran = box.sh(kLook);
    EXPECT_EQ(ran.status, ISOGATE_OK) << at_ << ": " << ran.error;
    expect_isolated(ran, box, true);
    EXPECT_EQ(box.write("file", "text"), ISOGATE_OK) << at_ << ": " << box.error;
    EXPECT_EQ(box.read("file").second, "text") << at_;
  }

  void expect_closed_to_calls(Box& box) {
    EXPECT_EQ(box.sh(kLook).status, ISOGATE_NO_SANDBOX) << at_;
    EXPECT_EQ(box.read("file").first, ISOGATE_NO_SANDBOX) << at_;
    EXPECT_EQ(box.read("/etc/passwd", ISOGATE_SCOPE_SANDBOX).first, ISOGATE_NO_SANDBOX) << at_;
    EXPECT_EQ(box.write("file", "late"), ISOGATE_NO_SANDBOX) << at_;
    EXPECT_EQ(box.evidence(), ISOGATE_NO_SANDBOX) << at_;
  }

  // After a step, failed or not: a sandbox whose close failed takes no calls, and the next close ends it.
  void expect_sound(Box& box, bool closing) {
    if (closing && box.it != nullptr) {
      ++failed_closes_;
      expect_closed_to_calls(box);
      EXPECT_EQ(box.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << at_ << ": " << box.error;
    }
    expect_works(box);
  }

  // Each system call of `step` fails once, in a separate sandbox that `prepare` has set up.
  void table(const std::string& name, bool closing, const std::function<void(Box&)>& prepare,
             const std::function<void(Box&)>& step) {
    const std::string obstacle = Injector::around([&](Injector& injector) {
      Backend backend(state_, ISOGATE_TESTED_PLUGIN);
      filters_ = filters();
      int number = 1;
      const auto tried = [&](int nth, int error) {
        Box box(backend, number, "agent-" + std::to_string(number));
        ++number;
        at_ = name + ", before it";
        expect_works(box);
        prepare(box);
        injector.arm(nth, error);
        step(box);
        const int count = injector.disarm();
        at_ = name + ", call " + std::to_string(nth) + " (number " + std::to_string(injector.failed()) +
              ") failed with " + std::to_string(error);
        expect_sound(box, closing);
        return count;
      };
      const auto once = [&](int nth, int error) {
        const int count = tried(nth, error);
        EXPECT_EQ(registered_uids(state_), "") << at_;
        return count;
      };
      once(0, 0);     // the very first run does more
      int count = 0;  // other threads do part of it, and may be late
      for (int tries = 0; tries < 20 && (tries < 3 || (count == 0 && kEnclosed)); ++tries)
        count = std::max(count, once(0, 0));
      ASSERT_TRUE(count > 0 || !kEnclosed) << name;
      RecordProperty("calls", count);
      const int stride = std::max(1, count / kMostPoints);
      for (const int error : kErrors)
        for (int nth = 1; nth <= count && !HasFailure(); nth += stride) once(nth, error);
    });
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }

  // Checked once: while a call of this thread may fail, the check may fail, too.
  void SetUp() override {
    filters_ = filters();
    for (const char* name : {"mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
      host_[name] = link_of(name);
      ASSERT_NE(host_[name], "");
    }
    if (!kEnclosed) return;
    if (!is_root_user()) GTEST_SKIP() << "without root this plugin is driven by the contract's cases";
    Backend backend(state_, ISOGATE_TESTED_PLUGIN);
    Box box(backend);
    if (box.error.find("chroot") != std::string::npos) GTEST_SKIP() << box.error;
  }

  std::string at_, filters_;
  std::map<std::string, std::string> host_;
  int failed_closes_ = 0;
};

void nothing(Box&) {}

TEST_F(CloseFaults, Open) {
  table(
      "open", false, [](Box& box) { EXPECT_EQ(box.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << box.error; },
      [](Box& box) { box.open(box.spec()); });
}

TEST_F(CloseFaults, Reopen) {
  table(
      "reopen", false, [](Box& box) { EXPECT_EQ(box.close(ISOGATE_CLOSE_STOP), ISOGATE_OK) << box.error; },
      [](Box& box) { box.open(box.spec(ISOGATE_OPEN_KNOWN)); });
}

TEST_F(CloseFaults, Stop) {
  table("stop", true, nothing, [](Box& box) { box.close(ISOGATE_CLOSE_STOP); });
}

TEST_F(CloseFaults, Purge) {
  table("purge", true, nothing, [](Box& box) { box.close(ISOGATE_CLOSE_PURGE); });
  EXPECT_TRUE(IsSkipped() || failed_closes_ > 0);
}

TEST_F(CloseFaults, Exec) {
  table("exec", false, nothing, [this](Box& box) {
    const Ran ran = box.sh(kLook);
    at_ = "exec, with a fault";
    if (ran.status == ISOGATE_OK) expect_isolated(ran, box, false);
  });
}

// Something else has the name of the trash: the whole purge fails.
TEST_F(CloseFaults, APurgeThatFailsLeavesASandboxThatOnlyCloses) {
  Backend backend(state_, ISOGATE_TESTED_PLUGIN);
  Box box(backend);
  at_ = "a purge that cannot be begun";
  expect_works(box);
  const std::string trash = state_ + "/sandboxes/.purged";
  std::filesystem::remove(trash);
  std::ofstream(trash) << "in the way";
  for (const uint32_t mode : {ISOGATE_CLOSE_PURGE, ISOGATE_CLOSE_PURGE}) {
    EXPECT_NE(box.close(mode), ISOGATE_OK);
    ASSERT_NE(box.it, nullptr);
    expect_closed_to_calls(box);
  }
  std::filesystem::remove(trash);
  ASSERT_EQ(box.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK) << box.error;
  ASSERT_TRUE(box.open(box.spec())) << box.error;
  EXPECT_EQ(box.info.flags & ISOGATE_SANDBOX_ATTACHED, 0u);
  expect_works(box);
}

// As the host does when its time is up: the name is free at once, however much must be removed.
TEST_F(CloseFaults, APurgeThatIsCancelledIsOverForItsAgent) {
  Backend backend(state_, ISOGATE_TESTED_PLUGIN);
  Box box(backend);
  at_ = "a purge that is cancelled";
  expect_works(box);
  ASSERT_EQ(box.sh("for i in {1..20}; do mkdir d$i && (cd d$i && touch f{1..1000}); done").result.exit_code,
            0);
  auto cancel = make_event();
  signal_event(cancel->get());
  ASSERT_EQ(box.close(ISOGATE_CLOSE_PURGE, cancel->get()), ISOGATE_OK) << box.error;
  expect_works(box);
  EXPECT_EQ(box.info.flags & ISOGATE_SANDBOX_ATTACHED, 0u);
  EXPECT_EQ(box.sh("ls").out, "file\n") << "nothing of the previous sandbox";
  for (int i = 0; i < 12'000 && !std::filesystem::is_empty(state_ + "/sandboxes/.purged"); ++i)
    ::usleep(10'000);
  EXPECT_TRUE(std::filesystem::is_empty(state_ + "/sandboxes/.purged")) << "the sweeper removes the rest";
}

TEST_F(CloseFaults, Evidence) {
  const auto unused = [](Box& box) {
    EXPECT_EQ(box.close(ISOGATE_CLOSE_STOP), ISOGATE_OK) << box.error;
    EXPECT_TRUE(box.open(box.spec(ISOGATE_OPEN_KNOWN))) << box.error;
  };
  table("evidence", false, unused, [this](Box& box) {
    isogate_evidence found{};
    if (box.evidence(&found) != ISOGATE_OK || !kEnclosed) return;
    EXPECT_NE("net:[" + std::to_string(found.ns_net) + "]", host_.at("net"));
    EXPECT_EQ(found.cap_effective | found.cap_bounding, 0u);
    EXPECT_EQ(found.uid, box.info.uid);
  });
}

}  // namespace
}  // namespace isogate::test
