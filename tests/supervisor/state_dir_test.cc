#include "gateway/supervisor/state_dir.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/program.h"

namespace isogate::supervisor {
namespace {

class StateDirTest : public testing::Test {
 protected:
  StateDirTest() {
    config_.state_dir = directory_.path() + "/a/state";
    accounts_ = {::geteuid() == 0, ::geteuid() == 0 ? 4242u : ::geteuid(),
                 ::geteuid() == 0 ? 4243u : ::getegid()};
  }
  std::string message() {
    auto state = prepare_state_dir(config_, accounts_);
    return state ? "ok" : state.error().message;
  }
  [[nodiscard]] struct stat info(const std::string& name) const {
    struct stat found {};
    EXPECT_EQ(::lstat((config_.state_dir + name).c_str(), &found), 0) << name;
    return found;
  }
  [[nodiscard]] mode_t passable() const { return accounts_.root ? 0711 : 0700; }

  test::TemporaryDirectory directory_;
  Config config_;
  Accounts accounts_;
};

TEST_F(StateDirTest, is_created_with_the_rights_of_each_part) {
  ASSERT_EQ(message(), "ok");
  EXPECT_EQ(info("").st_mode & 07777u, passable());
  EXPECT_EQ(info("/front").st_mode & 07777u, 0700u);
  EXPECT_EQ(info("/front").st_uid, accounts_.front_uid);
  EXPECT_EQ(info("/front").st_gid, accounts_.front_gid);
  EXPECT_EQ(info("/sandboxes").st_mode & 07777u, passable());
  EXPECT_EQ(info("/sandboxes").st_uid, ::geteuid());
  EXPECT_EQ(info("/uids").st_mode & 07777u, 0700u);
  EXPECT_EQ(info("/run").st_mode & 07777u, 0700u);
  EXPECT_EQ(info("/lock").st_mode & 07777u, 0600u);
  EXPECT_EQ(message(), "ok") << "what it made itself is accepted";
}

TEST_F(StateDirTest, a_parent_that_the_front_cannot_enter_is_named) {
  if (!accounts_.root) GTEST_SKIP() << "an ordinary user's front is that user";
  ASSERT_EQ(::mkdir((directory_.path() + "/a").c_str(), 0700), 0);
  EXPECT_EQ(message(), "uid 4242, which the front runs as, cannot enter `" + directory_.path() +
                           "/a` above the state directory `" + config_.state_dir +
                           "`; choose another place with --state-dir, or let others pass through with: "
                           "chmod o+x '" +
                           directory_.path() + "/a'");
  ASSERT_EQ(::chmod((directory_.path() + "/a").c_str(), 0711), 0);
  EXPECT_EQ(message(), "ok");
}

TEST_F(StateDirTest, does_not_depend_on_the_umask) {
  const mode_t before = ::umask(077);
  EXPECT_EQ(message(), "ok");
  ::umask(before);
  EXPECT_EQ(info("").st_mode & 07777u, passable());
}

TEST_F(StateDirTest, wider_modes_are_refused_with_the_command_that_mends_them) {
  ASSERT_EQ(message(), "ok");
  for (const char* part : {"", "/front", "/sandboxes", "/uids"}) {
    const std::string path = config_.state_dir + part;
    const mode_t right = info(part).st_mode & 07777u;
    ASSERT_EQ(::chmod(path.c_str(), right | 0044), 0);
    const std::string said = message();
    EXPECT_NE(said.find("refusing to use `" + path + "`"), std::string::npos) << said;
    EXPECT_NE(said.find("chmod 07"), std::string::npos) << said;
    ASSERT_EQ(::chmod(path.c_str(), right), 0);
  }
  EXPECT_EQ(message(), "ok");
}

TEST_F(StateDirTest, a_foreign_owner_is_refused) {
  if (!accounts_.root) GTEST_SKIP() << "only root can make a directory of somebody else";
  ASSERT_EQ(message(), "ok");
  ASSERT_EQ(::chown((config_.state_dir + "/uids").c_str(), 4242, 4242), 0);
  const std::string said = message();
  EXPECT_NE(said.find("belongs to uid 4242, not 0"), std::string::npos) << said;
  EXPECT_NE(said.find("chown 0 '"), std::string::npos) << said;
}

TEST_F(StateDirTest, a_symlink_is_refused) {
  ASSERT_EQ(message(), "ok");
  ASSERT_EQ(::rmdir((config_.state_dir + "/front").c_str()), 0);
  ASSERT_EQ(::symlink("/etc", (config_.state_dir + "/front").c_str()), 0);
  EXPECT_NE(message().find("symlink"), std::string::npos);
}

TEST_F(StateDirTest, a_relative_path_is_refused) {
  config_.state_dir = "state";
  EXPECT_NE(message().find("not an absolute path"), std::string::npos);
}

TEST_F(StateDirTest, one_gateway_at_a_time) {
  auto first = prepare_state_dir(config_, accounts_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const std::string said = message();
  EXPECT_NE(said.find("in use by another gateway (pid " + std::to_string(::getpid()) + ")"),
            std::string::npos)
      << said;
  first->lock.reset();
  first->sandboxes_lock.reset();
  EXPECT_EQ(message(), "ok");
}

TEST_F(StateDirTest, a_lock_without_a_whole_line_is_one_all_the_same) {
  auto first = prepare_state_dir(config_, accounts_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  std::ofstream(config_.state_dir + "/lock") << "12345678901234567890";
  const std::string said = message();
  EXPECT_NE(said.find("in use by another gateway (pid 123456789012345)"), std::string::npos) << said;
}

// As that of a killed gateway does until it runs its program.
TEST_F(StateDirTest, a_child_that_soon_releases_the_locks_is_waited_for) {
  auto first = prepare_state_dir(config_, accounts_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const pid_t child = ::fork();
  if (child == 0) {
    ::usleep(200'000);
    ::_exit(0);
  }
  first->lock.reset();
  first->sandboxes_lock.reset();
  EXPECT_EQ(message(), "ok");
  ::waitpid(child, nullptr, 0);
}

TEST_F(StateDirTest, a_refused_second_start_does_not_disturb_the_first) {
  auto first = prepare_state_dir(config_, accounts_);
  ASSERT_TRUE(first.ok());
  auto copy = make_plugin_copy_dir(*first, "one.1");
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_NE(message(), "ok");
  EXPECT_EQ(::access(copy->c_str(), F_OK), 0);
}

TEST_F(StateDirTest, plugin_copies_of_an_earlier_life_go) {
  std::string path;
  {
    auto state = prepare_state_dir(config_, accounts_);
    ASSERT_TRUE(state.ok());
    path = *make_plugin_copy_dir(*state, "one.1");
    ASSERT_EQ(::mkdir((path + "/deep").c_str(), 0700), 0);
    ASSERT_EQ(::symlink("/etc/passwd", (path + "/deep/x.so").c_str()), 0);
  }
  EXPECT_EQ(message(), "ok");
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_EQ(::access("/etc/passwd", F_OK), 0);
}

TEST_F(StateDirTest, a_workdir_holds_the_sandboxes) {
  config_.workdir = directory_.path() + "/work";
  auto state = prepare_state_dir(config_, accounts_);
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(state->sandboxes, config_.workdir);
  state->lock.reset();
  ASSERT_EQ(::chmod(config_.workdir.c_str(), 0777), 0);
  EXPECT_NE(message().find("chmod go-w"), std::string::npos);
}

TEST_F(StateDirTest, two_gateways_never_share_the_directory_of_sandboxes) {
  config_.workdir = directory_.path() + "/work";
  auto first = prepare_state_dir(config_, accounts_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  config_.state_dir = directory_.path() + "/another";
  EXPECT_NE(message().find("`" + config_.workdir + "` is in use by another gateway"), std::string::npos);
  config_.workdir = directory_.path() + "/a/state/sandboxes";
  EXPECT_EQ(message(), "ok") << "nobody uses it";
  first->sandboxes_lock.reset();
  config_.workdir = directory_.path() + "/work";
  EXPECT_EQ(message(), "ok");
}

TEST_F(StateDirTest, that_is_a_symlink_is_refused_with_its_target) {
  ASSERT_EQ(message(), "ok");
  const std::string target = config_.state_dir;
  config_.state_dir = directory_.path() + "/link";
  ASSERT_EQ(::symlink(target.c_str(), config_.state_dir.c_str()), 0);
  const std::string said = message();
  EXPECT_NE(said.find("symlink to `" + target + "`; name that directory"), std::string::npos) << said;
  EXPECT_EQ(said.find("mv "), std::string::npos) << said;
}

TEST_F(StateDirTest, a_check_says_what_a_start_would_say_and_makes_nothing) {
  config_.workdir = directory_.path() + "/work";
  const auto checked = [this] {
    auto result = check_state_dir(config_, accounts_);
    return result ? std::string("ok") : result.error().message;
  };
  EXPECT_EQ(checked(), "ok");
  EXPECT_NE(::access(config_.state_dir.c_str(), F_OK), 0);
  ASSERT_EQ(message(), "ok");
  EXPECT_EQ(checked(), "ok");
  for (const std::string& path : {config_.state_dir, config_.state_dir + "/uids", config_.workdir}) {
    ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
    const std::string said = checked();
    EXPECT_NE(said.find("refusing to use `" + path + "`"), std::string::npos) << said;
    EXPECT_EQ(said, message());
    ASSERT_EQ(::chmod(path.c_str(), path.ends_with("uids") ? 0700 : passable()), 0);
  }
}

// A front or a host that an attacker controls, with its uid.
TEST_F(StateDirTest, each_process_reaches_only_its_part) {
  if (!accounts_.root) GTEST_SKIP() << "an ordinary user's processes share one uid";
  ASSERT_EQ(message(), "ok");
  for (const char* file : {"/front/state.db", "/uids/61200", "/run/one.so"})
    directory_.file("a/state" + std::string(file), "secret", 0644);
  ASSERT_EQ(::mkdir((config_.state_dir + "/sandboxes/isg-x").c_str(), 0711), 0);
  ASSERT_EQ(::mkdir((config_.state_dir + "/sandboxes/isg-x/workspace").c_str(), 0700), 0);
  const auto reaches = [&](uid_t uid, const std::string& name, int flags, mode_t mode = 0) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::setgroups(0, nullptr) != 0 || ::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0)
        ::_exit(9);
      ::_exit(::open((config_.state_dir + name).c_str(), flags | O_CLOEXEC, mode) >= 0 ? 1 : 0);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WEXITSTATUS(status) == 1;
  };
  EXPECT_TRUE(reaches(accounts_.front_uid, "/front/state.db", O_RDONLY));
  EXPECT_FALSE(reaches(5353, "/front/state.db", O_RDONLY));
  for (const uid_t uid : {accounts_.front_uid, 5353u}) {
    for (const char* name : {"", "/sandboxes", "/uids/61200", "/run/one.so", "/sandboxes/isg-x/workspace"})
      EXPECT_FALSE(reaches(uid, name, O_RDONLY)) << uid << " reads " << name;
    EXPECT_FALSE(reaches(uid, "/sandboxes/new", O_WRONLY | O_CREAT, 0600)) << uid;
  }
}

TEST(Accounts, a_missing_run_as_is_refused_with_the_way_to_make_it) {
  if (::geteuid() != 0) GTEST_SKIP() << "an ordinary user's gateway changes no user";
  if (::getpwnam("isogate") == nullptr || ::getpwnam("isogate-host") == nullptr)
    GTEST_SKIP() << "the system users are missing: run scripts/install-deps.sh";
  Config config;
  config.backends.emplace_back();
  config.backends[0].name = "one";
  config.backends[0].run_as = "isogate-no-such-user";
  auto accounts = find_accounts(config);
  ASSERT_FALSE(accounts.ok());
  EXPECT_NE(accounts.error().message.find("`isogate-no-such-user`, the run_as of backend `one`"),
            std::string::npos);
  EXPECT_NE(accounts.error().message.find("useradd --system"), std::string::npos);
  config.backends[0].run_as = "root";
  EXPECT_FALSE(find_accounts(config).ok());
}

}  // namespace
}  // namespace isogate::supervisor
