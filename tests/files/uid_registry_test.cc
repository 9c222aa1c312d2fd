#include "runner/uid/uid_registry.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "runner/cgroup/cgroup_detect.h"
#include "runner/uid/uid_leftovers.h"
#include "tests/eventually.h"
#include "tests/files/box.h"
#include "tests/own_machine.h"

namespace isogate::test {
namespace {

std::string id_of(int number) {
  std::string id = "isg-aaaaaaaaaaaaaaaaaaaaaaaaaa";
  for (size_t i = id.size(); number > 0; number /= 26) id[--i] = static_cast<char>('a' + number % 26);
  return id;
}

constexpr SipKey kKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};
constexpr const char* kKeyText = "07060504030201000f0e0d0c0b0a0908\n";

// Once it is counted; -1: there is none.
pid_t start_process_of(uint32_t uid) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(uid, uid, uid) != 0) ::_exit(1);
    for (;;) ::pause();
  }
  const auto is_counted = [&] {
    const auto running = count_processes(uid);
    return running && *running > 0;
  };
  if (child < 0 || eventually(20, is_counted)) return child;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

uint32_t preferred(std::string_view seed) { return UidRegistry::preferred(kKey, seed); }

class Uids : public Box {
 protected:
  Uids() {
    ::mkdir(uids_.c_str(), 0700);
    for (const auto* file : {&passwd_, &group_, &subuid_, &subgid_}) spill(*file, "");
  }
  // With this test's key in each directory, unless it has one: so it is known which uids agents want.
  UidRegistry registry() { return registry_of(uids_); }
  // The registry of another gateway, with its own sandboxes, too.
  UidRegistry registry_of(const std::string& uids) {
    const std::string sandboxes = uids == uids_ ? sandboxes_ : uids + ".sandboxes";
    ::mkdir(sandboxes.c_str(), 0711);
    if (!exists(uids + "/key")) spill(uids + "/key", kKeyText);
    return keyless(uids, sandboxes);
  }
  UidRegistry keyless(const std::string& uids, const std::string& sandboxes) {
    return UidRegistry({uids, sandboxes, passwd_, group_, subuid_, subgid_, claims_});
  }
  std::string directory_of_another() const {
    const std::string others = top_ + "/others";
    EXPECT_EQ(::mkdir(others.c_str(), 0700), 0);
    return others;
  }
  Result<std::unique_ptr<Workspace>> make(const std::string& id, uint32_t uid) {
    return Workspace::open({sandboxes_, id, {true, uid, uid}, nullptr, false, "test"}, false);
  }
  std::string uids_ = top_ + "/uids", passwd_ = top_ + "/passwd", group_ = top_ + "/group",
              subuid_ = top_ + "/subuid", subgid_ = top_ + "/subgid", claims_ = top_ + "/claims";
  const uint32_t wanted_ = preferred("agent");
};

class UidsOfRoot : public Uids {
 protected:
  void SetUp() override {
    Uids::SetUp();
    if (!is_root()) GTEST_SKIP() << "sandboxes have uids of their own only as root";
  }
};

TEST_F(Uids, AreTheHashOfTheAgent) {
  EXPECT_EQ(preferred(""), 0x726fdb47dd0e0e31 % 60000 + 10000);
  EXPECT_EQ(*registry().assign(id_of(1), "foobar"), preferred("foobar"));
}

// Otherwise a tenant computes which names of its own have the uid of another tenant's `bob`.
TEST_F(Uids, OfTheSameNamesDifferWithTheKeyThatEachRegistryMakes) {
  const std::string others = top_ + "/others", none = top_ + "/none";
  for (const std::string& each : {others, none}) ASSERT_EQ(::mkdir(each.c_str(), 0700), 0);
  int same = 0;
  for (const char* agent : {"alice", "bob", "carol"}) {
    const auto one = keyless(uids_, none).assign(id_of(agent[0]), agent);
    ASSERT_OK(one);
    std::filesystem::remove_all(claims_);  // of another host
    const auto other = keyless(others, none).assign(id_of(agent[0]), agent);
    ASSERT_OK(other);
    same += *one == *other ? 1 : 0;
  }
  EXPECT_LT(same, 3);
  struct stat info {};
  ASSERT_EQ(::stat((uids_ + "/key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0600u);
  const std::string key = slurp(uids_ + "/key");
  EXPECT_EQ(key.size(), 33u);
  EXPECT_NE(key, slurp(others + "/key"));
  ASSERT_OK(keyless(uids_, none).assign(id_of(1), "dave"));
  EXPECT_EQ(slurp(uids_ + "/key"), key) << "it stays";
}

TEST_F(Uids, AreNotGivenOutByADamagedKey) {
  const auto uid = registry().assign(id_of(1), "agent");
  ASSERT_OK(uid);
  if (is_root()) {
    ASSERT_OK(make(id_of(1), *uid));
  }
  const std::string key = uids_ + "/key", digits(32, '0');
  for (const std::string& text : {std::string(), std::string("\n"), digits.substr(1), digits + "0",
                                  digits + "\n\n", "-" + digits.substr(1), digits.substr(2) + "0x"}) {
    spill(key, text);
    const Error error = registry().assign(id_of(2), "other").error();
    EXPECT_EQ(error.status, ISOGATE_INTERNAL) << text;
    EXPECT_NE(error.message.find("`uids/key` in the state directory is damaged"), std::string::npos)
        << error.message;
    EXPECT_EQ(slurp(key), text) << "it is not replaced";
    if (is_root()) {
      EXPECT_EQ(*registry().assign(id_of(1), "agent"), *uid) << "an assigned uid stays";
    }
  }
  for (const bool link : {false, true}) {
    std::filesystem::remove(key);
    if (link)
      std::filesystem::create_symlink(passwd_, key);
    else
      std::filesystem::create_directory(key);
    EXPECT_FALSE(registry().assign(id_of(2), "other").ok()) << link;
  }
  std::filesystem::remove(key);
  EXPECT_OK(keyless(uids_, sandboxes_).assign(id_of(2), "other")) << "the advice works";
}

// Otherwise a tenant whose `bob` gets the next free uid knows that another tenant has a `bob`.
TEST_F(Uids, OfSeveralTenantsSayNothingOfEachOther) {
  isogate_host host{};
  isogate_sandbox_spec spec{};
  const auto seed = [&](const std::string& tenant, const std::string& agent) {
    spec.tenant = {tenant.data(), tenant.size()};
    spec.agent_id = {agent.data(), agent.size()};
    return uid_seed(host, spec);
  };
  EXPECT_EQ(seed("a", "bob"), "bob") << "one tenant: as ever";
  host.flags = ISOGATE_HOST_MANY_TENANTS;
  EXPECT_NE(preferred(seed("a", "bob")), preferred("bob"));
  EXPECT_NE(preferred(seed("a", "bob")), preferred(seed("b", "bob")));
  EXPECT_NE(seed("a", "bob"), seed("ab", "ob"));
  const auto first = registry().assign(id_of(1), seed("a", "bob"));
  ASSERT_OK(first);
  ASSERT_OK(make(id_of(1), is_root() ? *first : ::geteuid()));
  if (is_root()) {
    host.flags = 0;
    EXPECT_EQ(*registry().assign(id_of(1), seed("a", "bob")), *first) << "an assigned uid stays";
  }
  EXPECT_EQ(*registry().assign(id_of(2), "bob"), preferred("bob"));
}

TEST_F(Uids, OfNobodyAndOfThe16BitMinusOneAreNeverGiven) {
  ASSERT_EQ(preferred("a79302"), 65534U);
  ASSERT_EQ(preferred("a99828"), 65535U);
  const auto one = registry().assign(id_of(1), "a79302");
  const auto two = registry().assign(id_of(2), "a99828");
  ASSERT_OK(one);
  ASSERT_OK(two);
  EXPECT_EQ(*one, 65536U);
  EXPECT_EQ(*two, 65537U);
}

TEST_F(Uids, OfOthersAreNeverGiven) {
  const auto line = [&](uint32_t id) { return "gw:x:" + std::to_string(id) + ":0::/:/bin/false\n"; };
  spill(passwd_, "root:x:0:0:root:/root:/bin/bash\n" + line(wanted_));
  spill(group_, "root:x:0:\nstaff:x:" + std::to_string(wanted_ + 1) + ":\n");
  spill(subuid_, "someone:" + std::to_string(wanted_ + 2) + ":10\n");
  spill(subgid_, "someone:" + std::to_string(wanted_ + 12) + ":1\n");
  EXPECT_EQ(*registry().assign(id_of(1), "agent"), wanted_ + 13);
}

TEST_F(Uids, AreHandedOverWithTheFiles) {
  const auto uid = registry().assign(id_of(1), "nobody yet");
  ASSERT_OK(uid);
  EXPECT_EQ(registry().hand_over(*uid, id_of(2), id_of(3)).error().status, ISOGATE_INTERNAL);
  ASSERT_OK(registry().hand_over(*uid, id_of(1), id_of(2)));
  if (is_root()) {
    ASSERT_OK(make(id_of(2), *uid));
    EXPECT_EQ(*registry().assign(id_of(2), "agent"), *uid);
  }
  EXPECT_NE(*registry().assign(id_of(1), "nobody yet"), *uid);
}

// Of a container, or of a directory service's user that appeared later.
TEST_F(Uids, ThatRunSomethingAreNotGiven) {
  if (!is_root()) GTEST_SKIP() << "needs to run under the uid of an agent's hash";
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setresuid(wanted_, wanted_, wanted_) != 0) ::_exit(1);
    for (;;) ::pause();
  }
  while (!uid_runs(wanted_)) ::usleep(1000);
  EXPECT_EQ(*registry().assign(id_of(1), "agent"), wanted_ + 1);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  EXPECT_FALSE(uid_runs(wanted_));
  ASSERT_OK(make(id_of(1), wanted_ + 1));
  EXPECT_EQ(*registry().assign(id_of(1), "agent"), wanted_ + 1) << "it keeps its assigned uid";
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_);
}

// Keys are seen by all: these tests run at the same time as an ordinary user, and need the uid of `agent`.
TEST_F(UidsOfRoot, ThatHaveKeysAreNotGiven) {
  constexpr const char* kAgent = "agent with keys";
  const uint32_t wanted = preferred(kAgent);
  const auto key = ::syscall(SYS_add_key, "user", "isogate-test", "x", 1, KEY_SPEC_PROCESS_KEYRING);
  if (key < 0) GTEST_SKIP() << "no keys can be made here";
  ASSERT_EQ(::syscall(SYS_keyctl, KEYCTL_CHOWN, key, wanted, -1), 0) << errno;
  const auto other = registry().assign(id_of(1), kAgent);
  EXPECT_EQ(::syscall(SYS_keyctl, KEYCTL_UNLINK, key, KEY_SPEC_PROCESS_KEYRING), 0) << errno;
  ASSERT_OK(other);
  EXPECT_NE(*other, wanted);
  EXPECT_TRUE(eventually(20, [&] { return *has_keys(wanted) == false; }));
  EXPECT_EQ(*registry().assign(id_of(2), kAgent), wanted);
}

TEST_F(Uids, OfThisProcessAreNeverGiven) {
  if (!is_root()) GTEST_SKIP() << "needs to run under the uid of an agent's hash";
  const std::string uids = top_ + "/others";
  for (const std::string& each : {uids, uids + ".sandboxes"}) {
    ASSERT_EQ(::mkdir(each.c_str(), 0700), 0);
    ASSERT_EQ(::chown(each.c_str(), wanted_, wanted_), 0);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresgid(wanted_, wanted_, wanted_) != 0 || ::setresuid(wanted_, wanted_, wanted_) != 0)
      ::_exit(2);
    const auto uid = registry_of(uids).assign(id_of(1), "agent");
    ::_exit(uid && *uid == wanted_ + 1 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Uids, CollideIntoTheNextFreeOneAndWrapAround) {
  EXPECT_EQ(*registry().assign(id_of(1), "agent"), wanted_);
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1);
  EXPECT_EQ(*registry().assign(id_of(3), "agent"), wanted_ + 2);
  spill(subuid_, "x:" + std::to_string(wanted_) + ":" + std::to_string(69999 - wanted_ + 1) + "\n");
  uint32_t first = 10000;
  while (uid_runs(first)) ++first;  // in use on this machine
  EXPECT_EQ(*registry().assign(id_of(4), "agent"), first);
  spill(subuid_, "x:0:70000\n");
  EXPECT_STATUS(registry().assign(id_of(5), "agent"), ISOGATE_RESOURCE_EXHAUSTED);
}

TEST_F(UidsOfRoot, SurviveARestartEvenWhenAnEarlierOneWasReleased) {
  ASSERT_EQ(*registry().assign(id_of(1), "agent"), wanted_);
  ASSERT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1);
  ASSERT_OK(make(id_of(2), wanted_ + 1));
  ASSERT_OK(registry().release(id_of(1), wanted_));
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1);
  EXPECT_EQ(*registry().assign(id_of(3), "agent"), wanted_);
}

TEST_F(UidsOfRoot, RecordedForTwoSandboxesAreAnErrorForTheSecond) {
  ASSERT_EQ(*registry().assign(id_of(1), "agent"), wanted_);
  ASSERT_OK(make(id_of(2), wanted_));
  EXPECT_STATUS(registry().assign(id_of(2), "agent"), ISOGATE_INTERNAL);
}

TEST_F(UidsOfRoot, AreRegisteredAgainWhenTheRegistryWasLost) {
  ASSERT_OK(make(id_of(1), wanted_ + 7));
  EXPECT_EQ(*registry().assign(id_of(1), "agent"), wanted_ + 7);
  EXPECT_EQ(slurp(uids_ + "/" + std::to_string(wanted_ + 7)), id_of(1) + "\n");
}

TEST_F(UidsOfRoot, OfASandboxWhoseRecordIsDamagedAreNotGivenToAnother) {
  ASSERT_OK(make(id_of(1), wanted_));
  spill(sandboxes_ + "/" + id_of(1) + "/uid", "12345x");
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1) << "the registry's entry is lost, too";
}

// Its workspace may be in a file system of its own.
TEST_F(UidsOfRoot, OfASandboxWithoutARecordAreNotGivenToAnother) {
  ASSERT_OK(make(id_of(1), wanted_));
  const std::string home = sandboxes_ + "/" + id_of(1);
  ASSERT_EQ(::unlink((home + "/uid").c_str()), 0);
  ASSERT_EQ(::rename((home + "/workspace").c_str(), (home + "/elsewhere").c_str()), 0);
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1) << "the registry's entry is lost, too";
}

TEST_F(UidsOfRoot, ThatWereTamperedWithAreAnError) {
  ASSERT_OK(make(id_of(1), wanted_));
  for (const char* text : {"0", "-1", "70000", "4294967295", "12345x", ""}) {
    spill(sandboxes_ + "/" + id_of(1) + "/uid", text);
    EXPECT_STATUS(registry().assign(id_of(1), "agent"), ISOGATE_INTERNAL) << text;
  }
}

TEST_F(UidsOfRoot, AreFoundAgainByTheAdviceWhereTheirRecordIsDamaged) {
  ASSERT_EQ(*registry().assign(id_of(1), "agent"), wanted_);
  ASSERT_OK(make(id_of(1), wanted_));
  const std::string home = sandboxes_ + "/" + id_of(1);
  spill(home + "/uid", "12345x");
  const Error error = registry().assign(id_of(1), "agent").error();
  EXPECT_EQ(error.message.find("purge"), std::string::npos) << "which needs the uid, too: " << error.message;
  EXPECT_NE(error.message.find("group"), std::string::npos) << error.message;
  struct stat info {};
  ASSERT_EQ(::stat(home.c_str(), &info), 0);
  spill(home + "/uid", std::to_string(info.st_gid) + "\n");
  EXPECT_EQ(*registry().assign(id_of(1), "agent"), wanted_) << "the advice works";
}

TEST_F(Uids, GivenByEightProcessesAtOnceAreAllDifferent) {
  constexpr int kEach = 50;
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 0; i < kEach; ++i)
        if (!keyless(uids_, sandboxes_).assign(id_of(1 + process * kEach + i), "agent")) ::_exit(1);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::set<std::string> owners;
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(uids_)) {
    const std::string owner = slurp(entry.path());
    if (owner.rfind(id_of(0).substr(0, 20), 0) != 0) continue;  // the box's own sandbox
    ++count;
    owners.insert(owner);
  }
  EXPECT_EQ(count, 8U * kEach);
  EXPECT_EQ(owners.size(), count);
}

TEST_F(Uids, OfOneSandboxAskedForByManyAtOnceIsOne) {
  std::vector<std::thread> threads;
  std::vector<uint32_t> got(8);
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] { got[i] = *keyless(uids_, sandboxes_).assign(id_of(1), "agent"); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(std::set<uint32_t>(got.begin(), got.end()).size(), 1U);
}

TEST_F(UidsOfRoot, AreReleasedOnlyWhenFilesAndProcessesAreGone) {
  const uint32_t uid = *registry().assign(id_of(1), "agent");
  ASSERT_OK(make(id_of(1), uid));
  EXPECT_STATUS(registry().release(id_of(1), uid), ISOGATE_UNAVAILABLE);
  ASSERT_OK(Workspace::purge(sandboxes_, id_of(1)));
  const pid_t child = start_process_of(uid);
  ASSERT_GT(child, 0);
  EXPECT_STATUS(registry().release(id_of(1), uid), ISOGATE_UNAVAILABLE);
  ASSERT_OK(end_processes(uid));
  EXPECT_EQ(*count_processes(uid), 0U);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_OK(registry().release(id_of(2), uid));  // not its own: nothing happens
  EXPECT_TRUE(exists(uids_ + "/" + std::to_string(uid)));
  EXPECT_OK(registry().release(id_of(1), uid));
  EXPECT_FALSE(exists(uids_ + "/" + std::to_string(uid)));
  EXPECT_OK(registry().release(id_of(1), uid));
}

// /proc shows it as a zombie.
TEST_F(UidsOfRoot, AreNotReleasedWhileAThreadOutlivesTheFirstOneOfItsProcess) {
  const uint32_t uid = *registry().assign(id_of(1), "agent");
  const std::string code =
      "import ctypes,threading,time\n"
      "threading.Thread(target=time.sleep,args=(600,)).start()\n"
      "ctypes.CDLL(None).syscall(" +
      std::to_string(SYS_exit) + ",0)";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(uid, uid, uid) == 0) ::execl("/usr/bin/python3", "python3", "-c", code.c_str(), nullptr);
    ::_exit(1);
  }
  ASSERT_GT(child, 0);
  const std::string status_file = "/proc/" + std::to_string(child) + "/status";
  EXPECT_TRUE(eventually(
      20, [&] { return read_small_file(AT_FDCWD, status_file).find("\nState:\tZ") != std::string::npos; }));
  EXPECT_EQ(*count_processes(uid), 1U);
  EXPECT_STATUS(registry().release(id_of(1), uid), ISOGATE_UNAVAILABLE);
  EXPECT_OK(end_processes(uid));
  int status = 0;
  EXPECT_TRUE(eventually(20, [&] { return ::waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_OK(registry().release(id_of(1), uid));
}

// That /proc hides one, or refuses to show it, does not end it.
TEST_F(UidsOfRoot, AreNeitherReleasedNorEndedWhereProcHidesTheirProcesses) {
  constexpr int kNoProc = 77;
  const uint32_t uid = *registry().assign(id_of(1), "agent");
  const pid_t stray = start_process_of(uid);
  ASSERT_GT(stray, 0);
  bool tried = true;
  for (const int hidepid : {1, 2}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!own_hiding_proc(hidepid)) ::_exit(kNoProc);
      const auto released = registry().release(id_of(1), uid), ended = end_processes(uid);
      for (const auto& each : {released, ended})
        if (each.ok() || each.error().message.find("hidepid=0") == std::string::npos) ::_exit(1);
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    tried = tried && !(WIFEXITED(status) && WEXITSTATUS(status) == kNoProc);
    EXPECT_TRUE(status == 0 || !tried) << "hidepid=" << hidepid;
  }
  ::kill(stray, SIGKILL);
  ::waitpid(stray, nullptr, 0);
  EXPECT_TRUE(exists(uids_ + "/" + std::to_string(uid)));
  if (!tried) GTEST_SKIP() << "no proc can be mounted here";
}

TEST_F(Uids, OfProcessesThatCannotBeLookedAtAreNotFree) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int free = ::open("/dev/null", O_RDONLY);
    const rlimit one_more{static_cast<rlim_t>(free) + 1, static_cast<rlim_t>(free) + 1};  // for /proc itself
    if (free < 0 || ::close(free) != 0 || ::setrlimit(RLIMIT_NOFILE, &one_more) != 0) ::_exit(2);
    const auto running = count_processes(::geteuid());
    ::_exit(!running && running.error().os_errno == EMFILE ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(HiddenProcesses, FollowFromTheOptionsOfProc) {
  const auto hides = [](const std::string& options, const std::vector<gid_t>& groups) {
    return hides_processes(
        "22 1 0:21 / / rw shared:1 - ext4 /dev/vda rw,hidepid=2\n"
        "23 22 0:22 / /proc rw,nosuid shared:2 - proc proc " +
            options + "\n24 23 0:23 / /proc/sys/fs/binfmt_misc rw - autofs none rw\n",
        groups);
  };
  for (const char* open : {"rw", "rw,gid=9", "rw,hidepid=0", "rw,hidepid=off"})
    EXPECT_FALSE(hides(open, {7})) << open;
  for (const char* closed : {"rw,hidepid=1", "rw,gid=9,hidepid=2", "rw,hidepid=invisible"}) {
    EXPECT_TRUE(hides(closed, {7})) << closed;
    EXPECT_FALSE(hides(closed, {7, std::string(closed).find("gid=9") == std::string::npos ? 0u : 9u}))
        << closed << ": that group sees all";
  }
  EXPECT_TRUE(hides("rw,gid=9,hidepid=2", {0}));
  for (const char* traced : {"rw,hidepid=4", "rw,gid=9,hidepid=ptraceable"})
    EXPECT_TRUE(hides(traced, {0, 9})) << traced;
  EXPECT_FALSE(hides("rw,gid=9,hidepid=2\n30 22 0:30 / /proc rw - proc proc rw", {0}))
      << "the last is on top";
}

TEST_F(Uids, ProcessesOfTheGatewayItselfAreNeverEnded) {
  EXPECT_STATUS(end_processes(0), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(end_processes(::geteuid()), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Uids, AnotherGatewaysUidIsNotGivenOut) {
  const std::string others = directory_of_another();
  ASSERT_EQ(*registry_of(others).assign(id_of(1), "agent"), wanted_);
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1);
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1) << "it stays";
  EXPECT_FALSE(std::filesystem::exists(uids_ + "/" + std::to_string(wanted_)))
      << "a uid that could not be claimed is released";
  ASSERT_TRUE(registry_of(others).release(id_of(1), wanted_).ok());
  EXPECT_EQ(*registry().assign(id_of(3), "agent"), wanted_);
}

TEST_F(Uids, LeftByAnOpenThatFailedAreReleasedWhereAnotherGatewayHasThemSince) {
  const std::string others = directory_of_another();
  ASSERT_EQ(*registry_of(others).assign(id_of(1), "agent"), wanted_);
  spill(uids_ + "/" + std::to_string(wanted_), id_of(2));
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1);
  EXPECT_FALSE(std::filesystem::exists(uids_ + "/" + std::to_string(wanted_)));
  EXPECT_EQ(*registry_of(others).assign(id_of(3), "agent"), wanted_ + 2) << "the first stays theirs";
}

TEST_F(Uids, AStateDirectoryThatIsGoneHoldsNoUid) {
  const std::string others = directory_of_another();
  ASSERT_EQ(*registry_of(others).assign(id_of(1), "agent"), wanted_);
  std::filesystem::remove_all(others);
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_);
}

TEST_F(UidsOfRoot, ARecordedUidThatAnotherGatewayHasIsAnErrorAndNotAnotherUid) {
  ASSERT_EQ(*registry().assign(id_of(1), "agent"), wanted_);
  ASSERT_TRUE(make(id_of(1), wanted_).ok());
  const std::string others = directory_of_another();
  std::filesystem::remove_all(claims_);  // as after a reboot
  ASSERT_EQ(*registry_of(others).assign(id_of(2), "agent"), wanted_);
  const Error error = registry().assign(id_of(1), "agent").error();
  EXPECT_EQ(error.status, ISOGATE_INTERNAL);
  EXPECT_NE(error.message.find("registered in `" + others + "`"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("move that directory away"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("purge the sandbox that has it there"), std::string::npos) << error.message;
  std::filesystem::rename(others, top_ + "/away");
  EXPECT_EQ(*registry().assign(id_of(1), "agent"), wanted_) << "the advice works";
}

TEST_F(Uids, ClaimsThatSomebodyElseMayWriteAreNotBelieved) {
  ASSERT_EQ(::mkdir(claims_.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(claims_.c_str(), 0777), 0);
  EXPECT_FALSE(registry().assign(id_of(1), "agent").ok());
}

// Another gateway may be stopped for some seconds while it holds them.
TEST_F(Uids, ClaimsThatAreHeldForSecondsAreWaitedFor) {
  ASSERT_EQ(::mkdir(claims_.c_str(), 0700), 0);
  const Fd held(::open(claims_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    ::flock(held.get(), LOCK_UN);
  });
  const auto uid = registry().assign(id_of(1), "agent");
  holder.join();
  EXPECT_OK(uid);
}

TEST_F(UidsOfRoot, EntriesThatAreMissingAreMadeAgainBeforeAnyIsGivenOut) {
  ASSERT_EQ(*registry().assign(id_of(1), "agent"), wanted_);
  ASSERT_TRUE(make(id_of(1), wanted_).ok());
  std::filesystem::remove(uids_ + "/" + std::to_string(wanted_));
  EXPECT_EQ(*registry().assign(id_of(2), "agent"), wanted_ + 1);
  EXPECT_EQ(*registry().assign(id_of(1), "agent"), wanted_);
}

}  // namespace
}  // namespace isogate::test
