#include "gateway/base/privileges.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/privileges/child.h"

namespace isogate::test {
namespace {

constexpr const char* kNone = "0000000000000000";

std::string all_capabilities() {
  std::string text;
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) text += status_line(set) + " ";
  return text;
}

#define SKIP_UNLESS_ROOT() \
  if (::geteuid() != 0) GTEST_SKIP() << "only root can change users and capabilities"

TEST(BecomeUser, has_its_ids_and_nothing_else) {
  SKIP_UNLESS_ROOT();
  auto end = in_child([] {
    auto result = become_user("nobody", {"tty"});
    if (!result) return result.error().message;
    return status_line("Uid") + "|" + status_line("Gid") + "|" + all_capabilities() + "|" +
           status_line("NoNewPrivs") + "|" + std::to_string(::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  });
  const std::string id = "65534\t65534\t65534\t65534";
  std::string capabilities;
  for (int i = 0; i < 5; ++i) capabilities += std::string(kNone) + " ";
  EXPECT_EQ(end.said, id + "|" + id + "|" + capabilities + "|1|0");
}

TEST(BecomeUser, adds_the_named_groups) {
  SKIP_UNLESS_ROOT();
  auto end = in_child([] {
    auto result = become_user("nobody", {"tty", "daemon"});
    return result ? status_line("Groups") : result.error().message;
  });
  EXPECT_EQ(end.said, "1 5 65534");
}

TEST(BecomeUser, cannot_come_back) {
  SKIP_UNLESS_ROOT();
  auto end = in_child([]() -> std::string {
    if (auto result = become_user("nobody", {}); !result) return result.error().message;
    if (::setresuid(0, 0, 0) == 0 || ::setuid(0) == 0) return "uid 0 again";
    if (::open("/etc/shadow", O_RDONLY | O_CLOEXEC) >= 0) return "reads /etc/shadow";
    if (::prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0) return "changed its securebits";
    return "stays";
  });
  EXPECT_EQ(end.said, "stays");
}

TEST(BecomeUser, refuses_root_and_strangers) {
  SKIP_UNLESS_ROOT();
  EXPECT_NE(in_child([] { return told(become_user("root", {})); }).said.find("uid 0"), std::string::npos);
  auto stranger = in_child([] { return told(become_user("isogate-no-such", {})); }).said;
  EXPECT_NE(stranger.find("no user `isogate-no-such`"), std::string::npos);
  auto group = in_child([] { return told(become_user("nobody", {"isogate-no-such"})); }).said;
  EXPECT_NE(group.find("no group `isogate-no-such`"), std::string::npos);
}

TEST(BecomeUser, is_refused_without_root) {
  auto end = in_ordinary_child([] { return told(become_user("nobody", {})); });
  EXPECT_NE(end.said.find("only root may change users"), std::string::npos) << end.said;
}

TEST(BecomeUser, is_refused_once_another_thread_runs) {
  SKIP_UNLESS_ROOT();
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer runs a thread of its own";
#endif
  auto end = in_child([] {
    std::thread other([] { ::pause(); });
    other.detach();
    return told(become_user("nobody", {}));
  });
  EXPECT_NE(end.said.find("2 threads run already"), std::string::npos) << end.said;
}

TEST(StaySameUser, loses_what_it_had) {
  auto end = in_ordinary_child([] {
    auto result = stay_same_user();
    if (!result) return result.error().message;
    return status_line("CapInh") + status_line("CapPrm") + status_line("CapEff") + status_line("CapAmb") +
           "|" + status_line("NoNewPrivs") + "|" + std::to_string(::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  });
  EXPECT_EQ(end.said, std::string(kNone) + kNone + kNone + kNone + "|1|0");
}

TEST(StaySameUser, loses_ambient_capabilities_of_a_service) {
  SKIP_UNLESS_ROOT();
  auto end = in_child([] {
    ::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)
      return std::string("ids");
    auto result = stay_same_user();
    return result ? status_line("CapPrm") + status_line("CapAmb") : result.error().message;
  });
  EXPECT_EQ(end.said, std::string(kNone) + kNone);
}

TEST(StaySameUser, is_refused_as_root) {
  SKIP_UNLESS_ROOT();
  EXPECT_NE(in_child([] { return told(stay_same_user()); }).said.find("uid 0"), std::string::npos);
}

TEST(KeepCapabilities, keeps_exactly_these) {
  SKIP_UNLESS_ROOT();
  const uint64_t mask = 1ull << CAP_KILL | 1ull << CAP_SETUID;
  auto end = in_child([mask] {
    auto result = keep_capabilities(mask);
    if (!result) return result.error().message;
    return status_line("Uid") + "|" + all_capabilities() + "|" + status_line("NoNewPrivs");
  });
  const std::string kept = "00000000000000a0 ";
  EXPECT_EQ(end.said, "0\t0\t0\t0|" + std::string(kNone) + " " + kept + kept + kept + kNone + " |1");
}

TEST(KeepCapabilities, a_program_of_its_own_has_no_more) {
  SKIP_UNLESS_ROOT();
  auto end = in_child([] {
    if (auto result = keep_capabilities(1ull << CAP_KILL); !result) return result.error().message;
    FILE* shell = ::popen("grep -E 'Cap(Prm|Eff)' /proc/self/status | cut -f2 | sort -u", "r");
    char line[64] = "";
    if (shell == nullptr || std::fgets(line, sizeof line, shell) == nullptr) return std::string("no shell");
    ::pclose(shell);
    return std::string(line);
  });
  EXPECT_EQ(end.said, "0000000000000020\n");
}

TEST(KeepCapabilities, none_is_a_root_without_power) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the runtime of the thread sanitizer does not outlive setresuid(2) in a fork";
#endif
  SKIP_UNLESS_ROOT();
  auto end = in_child([]() -> std::string {
    if (auto result = keep_capabilities(0); !result) return result.error().message;
    if (::setresuid(1, 1, 1) == 0) return "changed its uid";
    return ::kill(1, 0) == 0 ? status_line("CapEff") : "cannot even look at pid 1";
  });
  EXPECT_EQ(end.said, kNone);
}

TEST(KeepCapabilities, is_refused_without_root) {
  auto end = in_ordinary_child([] { return told(keep_capabilities(0)); });
  EXPECT_NE(end.said.find("not root"), std::string::npos) << end.said;
}

TEST(LoaderEnvironment, is_refused_by_name) {
  auto end = in_child([] {
    ::setenv("LD_AUDIT", "/tmp/x.so", 1);
    return told(check_loader_environment());
  });
  EXPECT_NE(end.said.find("LD_AUDIT"), std::string::npos);
  EXPECT_NE(end.said.find("env -u LD_AUDIT"), std::string::npos);
  EXPECT_EQ(end.said.find("/tmp/x.so"), std::string::npos);
}

TEST(LoaderEnvironment, others_are_fine) {
  auto end = in_child([] {
    ::clearenv();
    ::setenv("OLD_LD_PATH", "x", 1);
    ::setenv("LDFLAGS", "x", 1);
    return told(check_loader_environment());
  });
  EXPECT_EQ(end.said, "ok");
}

}  // namespace
}  // namespace isogate::test
