#include <gtest/gtest.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "isogate/backend.hpp"
#include "plugins/namespace/config.h"
#include "runner/enclosure/syscall_filter.h"
#include "runner/enclosure/syscall_policy.h"

namespace isogate::ns {
namespace {

constexpr bool kDefault = false, kDebug = true;  // whether programs may trace each other

// What a child under the filter reports.
int under(bool profile, const std::function<int()>& inside) {
  const auto code = make_sandbox_filter(profile);
  EXPECT_TRUE(code.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const sock_fprog program = {static_cast<unsigned short>(code->size()),
                                const_cast<sock_filter*>(code->data())};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
      ::_exit(99);
    ::_exit(inside());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int error_of(long number, long a = -1, long b = 0, long c = 0) {
  return ::syscall(number, a, b, c, 0, 0, 0) < 0 ? errno : 0;
}

// Every number of the table, decided by the kernel.
TEST(Filter, DecidesEveryNumberAsItsTableSays) {
  std::set<int> allowed, all;
  for (const SyscallRow& row : syscall_policy()) {
    EXPECT_GT(std::string(row.reason).size(), 5u);
    for (const auto& [name, number] : row.calls) {
      EXPECT_TRUE(all.insert(number).second) << number << " stands twice";
      if (row.verdict != SyscallVerdict::kRefuse && row.verdict != SyscallVerdict::kAbsent &&
          row.verdict != SyscallVerdict::kDebugOnly)
        continue;
      const int wanted = row.verdict == SyscallVerdict::kAbsent ? ENOSYS : EPERM;
      EXPECT_EQ(under(kDefault, [&] { return error_of(number); }), wanted) << number;
    }
  }
  EXPECT_GT(all.size(), 300u);
}

TEST(Filter, GapsAreRefusedAndTheFutureIsAbsent) {
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_kexec_file_load); }), EPERM);
  for (const long number : {500L, 1000L, 100000L})
    EXPECT_EQ(under(kDefault, [&] { return error_of(number); }), ENOSYS) << number;
}

TEST(Filter, LooksAtArguments) {
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_personality, 0x0040000); }), EPERM);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_personality, 0xffffffff); }), 0);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_socket, 40, 1, 0); }), EAFNOSUPPORT);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_socket, 16, 3, 12); }), EAFNOSUPPORT);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_socket, 16, 3, 0); }), EAFNOSUPPORT);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_socket, 1, 1, 0); }), 0);
  for (const long protocol : {0L, 6L})
    EXPECT_EQ(under(kDefault, [=] { return error_of(SYS_socket, 2, 1, protocol); }), 0);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_socket, 10, 2, 17); }), 0);
  for (const long type : {3L, 5L, 10L, 5L | 02000000})
    EXPECT_EQ(under(kDefault, [=] { return error_of(SYS_socket, 2, type, 0); }), EAFNOSUPPORT) << type;
  for (const long protocol : {132L, 136L, 262L})
    EXPECT_EQ(under(kDefault, [=] { return error_of(SYS_socket, 2, 1, protocol); }), EAFNOSUPPORT);
  for (const long family : {16L, 17L, 30L, 40L})
    EXPECT_EQ(under(kDefault, [=] { return error_of(SYS_socketpair, family, 1, 0); }), EAFNOSUPPORT);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_socketpair, 1, 1, 0); }), EFAULT);
  for (const long option : {26L, 50L, 51L, 52L})
    EXPECT_EQ(under(kDefault, [=] { return error_of(SYS_setsockopt, -1, 1, option); }), EPERM) << option;
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_setsockopt, -1, 1, 8); }), 0);        // SO_RCVBUF
  EXPECT_NE(under(kDefault, [] { return error_of(SYS_setsockopt, -1, 1, 7); }), 0);        // SO_SNDBUF
  EXPECT_NE(under(kDefault, [] { return error_of(SYS_setsockopt, -1, 41, 26); }), EPERM);  // IPV6_V6ONLY
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_fcntl, 1, 1031, 1 << 20); }), EPERM);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_fcntl, 0, 3, 0); }), 0);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_ioctl, 0, 0x5423L, 0); }), EPERM);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_ioctl, 0, 0x5412L | 1L << 32, 0); }), EPERM);
  for (const long project : {FS_IOC_FSSETXATTR, FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS})
    EXPECT_EQ(under(kDefault, [=] { return error_of(SYS_ioctl, 0, project, 0); }), EPERM) << project;
  for (const long subvolume : {0x50009401L, 0x5000940EL, 0x50009417L, 0x50009418L, 0x4008941AL})
    EXPECT_EQ(under(kDefault, [=] { return error_of(SYS_ioctl, 0, subvolume, 0); }), EPERM) << subvolume;
  EXPECT_NE(under(kDefault, [] { return error_of(SYS_ioctl, 0, FS_IOC_FSGETXATTR, 0); }), EPERM);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_clone, 0x10000000, 0, 0); }), EPERM);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_sync); }), 0);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_mknodat, -1, 0, 0020666); }), EPERM);
  EXPECT_NE(under(kDefault, [] { return error_of(SYS_mknodat, -1, 0, 0010666); }), EPERM);
}

// Whether or not this machine has any.
TEST(Filter, RefusesHugePages) {
  const auto map = [](int flags) {
    return under(kDefault, [=] {
      const int all = MAP_PRIVATE | MAP_ANONYMOUS | flags;
      return ::mmap(nullptr, 4096, PROT_READ, all, -1, 0) == MAP_FAILED ? errno : 0;
    });
  };
  EXPECT_EQ(map(0), 0);
  EXPECT_EQ(map(MAP_HUGETLB), EPERM);
  EXPECT_EQ(map(MAP_HUGETLB | (30 << MAP_HUGE_SHIFT)), EPERM);
  EXPECT_NE(under(kDefault, [] { return error_of(SYS_memfd_create, 0, 0); }), EPERM);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_memfd_create, 0, MFD_HUGETLB); }), EPERM);
  EXPECT_NE(under(kDefault, [] { return error_of(SYS_shmget, 0, 0, IPC_CREAT); }), EPERM);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_shmget, 0, 0, IPC_CREAT | SHM_HUGETLB); }), EPERM);
}

TEST(Filter, KeepsOffTheFirstProcess) {
  for (const long number :
       {SYS_prlimit64, SYS_sched_setaffinity, SYS_sched_setparam, SYS_sched_setscheduler}) {
    EXPECT_EQ(under(kDefault, [=] { return error_of(number, 1, 0, 0); }), EPERM) << number;
    EXPECT_EQ(under(kDefault, [=] { return error_of(number, 1L << 32 | 1, 0, 0); }), EPERM) << number;
    EXPECT_NE(under(kDefault, [=] { return error_of(number, 0, 0, 0); }), EPERM) << number;
    EXPECT_NE(under(kDefault, [=] { return error_of(number, ::getpid(), 0, 0); }), EPERM) << number;
  }
  const auto setpriority = [](long which, long who) {
    return under(kDefault, [=] { return error_of(SYS_setpriority, which, who, 19); });
  };
  EXPECT_EQ(setpriority(0, 1), EPERM);
  EXPECT_EQ(setpriority(2, 0), EPERM);
  EXPECT_EQ(setpriority(0, 0), 0);
  const auto ioprio_set = [](long which, long who) {
    return under(kDefault, [=] { return error_of(SYS_ioprio_set, which, who, 3 << 13); });
  };
  EXPECT_EQ(ioprio_set(1, 1), EPERM);
  EXPECT_EQ(ioprio_set(3, 0), EPERM);
  EXPECT_EQ(ioprio_set(1, 0), 0);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_sched_setscheduler, 0, 5, 0); }), EPERM) << "idle";
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_sched_setscheduler, 0, 5 | 0x40000000, 0); }), EPERM);
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_sched_setattr, 0, 0, 0); }), ENOSYS);
}

TEST(Filter, DebugAllowsTracingAndNothingElse) {
  EXPECT_EQ(under(kDefault, [] { return error_of(SYS_ptrace, 0); }), EPERM);
  EXPECT_EQ(under(kDebug, [] { return error_of(SYS_ptrace, 0); }), 0);
  EXPECT_EQ(under(kDebug, [] { return error_of(SYS_unshare, 0x10000000); }), EPERM);
}

TEST(Filter, IsShort) {
  const auto code = make_sandbox_filter(kDefault);
  ASSERT_TRUE(code.ok());
  EXPECT_LT(code->size(), 400u);
}

TEST(Config, IsStrict) {
  for (const char* bad :
       {"[]", "x", R"({"cpus": "many"})", R"({"memory_mb": 8})", R"({"pids": 4})", R"({"cpus": 0.001})",
        R"({"disk_mb": 4})", R"({"disk_mb": 0, "workspace_fs": "loop"})"})
    EXPECT_THROW((void)parse_config(bad), sdk::Error) << bad;
  const Config config = parse_config(
      R"({"profile": "debug", "max_processes": 64, "shm_mb": 8, "inits_ahead": false, "root": "/srv/root"})");
  EXPECT_EQ(config.max_processes, 64u);
  EXPECT_EQ(config.shm_mb, 8u);
  EXPECT_FALSE(config.inits_ahead);
  EXPECT_EQ(config.root, "/srv/root");
  EXPECT_FALSE(relaxations_of(config).empty());
  EXPECT_TRUE(relaxations_of(parse_config("")).empty());
}

TEST(Config, HasTheStrictDefaultsAndSaysWhatIsWeaker) {
  const auto properties = nlohmann::json::parse(kConfigSchema).at("properties");
  EXPECT_EQ(properties.at("memory_mb").at("default"), kStrictLimits.memory_mb);
  EXPECT_EQ(properties.at("cpus").at("default"), kStrictLimits.cpus);
  EXPECT_EQ(properties.at("pids").at("default"), kStrictLimits.pids);
  EXPECT_EQ(properties.at("tmp_mb").at("default"), kStrictLimits.tmp_mb);
  EXPECT_EQ(properties.at("shm_mb").at("default"), kStrictLimits.shm_mb);
  const auto weaker = relaxations_of(parse_config(R"({"memory_mb": 0, "cpus": 2.5, "pids": 1000})"));
  EXPECT_EQ(weaker, (std::vector<std::string>{"a sandbox may take all memory of this host",
                                              "cpus is 2.5, not 1", "pids is 1000, not 256"}));
}

}  // namespace
}  // namespace isogate::ns
