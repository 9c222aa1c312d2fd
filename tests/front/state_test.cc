#include "gateway/front/state/state.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gateway/front/base/names.h"

namespace isogate::front {
namespace {

// Each test has its own directory, removed at its end.
class StateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "isogate-state-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root = name;
    path = root + "/front/state.db";
  }
  void TearDown() override { EXPECT_EQ(std::system(("rm -rf '" + root + "'").c_str()), 0); }

  static std::unique_ptr<State> open(const std::string& path, State::Options options = {}) {
    Result<std::unique_ptr<State>> state = State::open(path, std::move(options));
    EXPECT_TRUE(state.ok()) << (state.ok() ? "" : state.error().message);
    return state.ok() ? std::move(*state) : nullptr;
  }
  std::string refusal() const {
    Result<std::unique_ptr<State>> state = State::open(path);
    EXPECT_FALSE(state.ok());
    return state.ok() ? "" : state.error().message;
  }
  void sql(const std::string& statement) const {
    const std::string start = "sqlite3 -cmd '.dbconfig defensive off' '" + path + "' \"";
    ASSERT_EQ(std::system((start + statement + "\" > /dev/null").c_str()), 0) << statement;
  }
  // Neither STRICT nor CHECK binds the statement; the schema is the same afterwards.
  void sql_past_checks(const std::string& statement) const {
    const std::string change = "; PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = ",
                      take_effect = "; PRAGMA writable_schema = RESET; ";
    sql("CREATE TEMP TABLE was AS SELECT name, sql FROM sqlite_master" + change +
        "replace(replace(sql, ' STRICT,', ''), ' STRICT', '')" + take_effect +
        "PRAGMA ignore_check_constraints = ON; " + statement + change +
        "(SELECT was.sql FROM was WHERE was.name = sqlite_master.name)" + take_effect);
  }

  std::string root, path;
};

// Recent: execs older than a week are pruned.
const int64_t kStart =
    std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count() -
    60'000;

SandboxRow sandbox(const std::string& id) {
  SandboxRow row;
  row.sandbox_id = "isg-" + id;
  row.tenant = "tenant é";
  row.agent_id = "agent";
  row.backend = "docker";
  row.handle = "container '0123\"/x";
  row.uid = UINT32_MAX;
  row.isolation = 20;
  row.created_ms = 1700000000000;
  row.last_used_ms = 1700000000001;
  return row;
}

ExecRow exec(const std::string& id, int64_t started_ms = kStart) {
  return {id, "isg-1", "local", "docker", "0123456789abcdef", "echo 'a'", started_ms, std::nullopt};
}

ExecOutcome exited(int32_t code) {
  ExecOutcome outcome;
  outcome.ended_ms = kStart + 500;
  outcome.outcome = Outcome::kExited;
  outcome.exit_code = code;
  outcome.stdout_bytes = 5'000'000'000;
  outcome.stderr_bytes = 7;
  outcome.duration_ms = 500;
  return outcome;
}

Result<void> put(State& state, SandboxRow row) {
  std::mutex mutex;
  std::condition_variable ready;
  std::optional<Result<void>> answer;
  state.put_sandbox(std::move(row), [&](Result<void> done) {
    std::lock_guard lock(mutex);
    answer = std::move(done);
    ready.notify_one();
  });
  std::unique_lock lock(mutex);
  ready.wait(lock, [&] { return answer.has_value(); });
  return *answer;
}

Result<std::optional<ExecRow>> find(State& state, const std::string& id) {
  Result<std::optional<ExecRow>> answer = Error{};
  state.find_exec(id, [&](Result<std::optional<ExecRow>> found) { answer = std::move(found); });
  EXPECT_TRUE(state.flush().ok());
  return answer;
}

std::vector<SandboxRow> sandboxes(State& state) {
  auto rows = state.load_sandboxes();
  EXPECT_TRUE(rows.ok());
  return rows.ok() ? *rows : std::vector<SandboxRow>{};
}

TEST_F(StateTest, ASandboxComesBackAsItWasPut) {
  SandboxRow lost = sandbox("a"), ending = sandbox("c");
  ending.state = SandboxRow::State::kEnding;
  ending.disk_limit_bytes = 1 << 20;
  ending.image = "team/tools:1";
  ending.expires_ms = kStart;
  ending.e2b_record = R"({"a":1})";
  {
    auto state = open(path);
    for (const SandboxRow& row : {sandbox("b"), ending}) ASSERT_TRUE(put(*state, row).ok());
    lost.state = SandboxRow::State::kLost;
    lost.uid = 10007;
    ASSERT_TRUE(put(*state, lost).ok());
  }
  auto state = open(path);
  std::vector<SandboxRow> rows = sandboxes(*state);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].state, SandboxRow::State::kLost);
  EXPECT_EQ(rows[0].uid, 10007u);
  EXPECT_TRUE(rows[2] == ending);
  const SandboxRow &row = rows[1], wanted = sandbox("b");
  EXPECT_EQ(row.sandbox_id, wanted.sandbox_id);
  EXPECT_EQ(row.tenant, wanted.tenant);
  EXPECT_EQ(row.agent_id, wanted.agent_id);
  EXPECT_EQ(row.backend, wanted.backend);
  EXPECT_EQ(row.handle, wanted.handle);
  EXPECT_EQ(row.uid, UINT32_MAX);
  EXPECT_EQ(row.isolation, 20u);
  EXPECT_EQ(row.created_ms, wanted.created_ms);
  EXPECT_EQ(row.last_used_ms, wanted.last_used_ms);
  EXPECT_EQ(row.state, SandboxRow::State::kActive);
}

TEST_F(StateTest, SandboxChangesApplyInTheirOrder) {
  auto state = open(path);
  state->put_sandbox(sandbox("a"), {});
  state->remove_sandbox("isg-a", {});
  SandboxRow again = sandbox("a");
  again.handle = "second";
  state->put_sandbox(again, {});
  state->put_sandbox(sandbox("b"), {});
  state->remove_sandbox("isg-b", {});
  state->remove_sandbox("isg-never", {});
  ASSERT_TRUE(state->flush().ok());
  std::vector<SandboxRow> rows = sandboxes(*state);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].handle, "second");
}

TEST_F(StateTest, ATouchOnlyMovesForward) {
  auto state = open(path);
  ASSERT_TRUE(put(*state, sandbox("a")).ok());
  state->touch_sandbox("isg-a", 1700000009000);
  state->touch_sandbox("isg-a", 1700000005000);
  state->touch_sandbox("isg-absent", 1);
  ASSERT_TRUE(state->flush().ok());
  state->touch_sandbox("isg-a", 1700000001000);
  ASSERT_TRUE(state->flush().ok());
  std::vector<SandboxRow> rows = sandboxes(*state);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].last_used_ms, 1700000009000);
}

TEST_F(StateTest, AnExecIsFoundOpenAndClosed) {
  auto state = open(path);
  state->exec_opened(exec("e1"));
  auto found = find(*state, "e1");
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_FALSE((*found)->ended);
  EXPECT_EQ((*found)->command, "echo 'a'");
  EXPECT_EQ((*found)->request_id, "0123456789abcdef");
  state->exec_closed("e1", exited(3));
  found = find(*state, "e1");
  ASSERT_TRUE(found.ok() && *found && (*found)->ended);
  EXPECT_EQ((*found)->ended->outcome, Outcome::kExited);
  EXPECT_EQ((*found)->ended->exit_code, 3);
  EXPECT_EQ((*found)->ended->stdout_bytes, 5'000'000'000u);
  EXPECT_EQ((*found)->ended->stderr_bytes, 7u);
  EXPECT_EQ((*found)->ended->duration_ms, 500u);
  found = find(*state, "unknown");
  EXPECT_TRUE(found.ok() && !*found);
}

TEST_F(StateTest, WhoAsksForAnExecEndsNoGatheringForACommit) {
  auto state = open(path);
  ASSERT_TRUE(state->flush().ok());
  std::promise<void> answered;
  const auto began = std::chrono::steady_clock::now();
  state->find_exec("none", [&](const Result<std::optional<ExecRow>>&) { answered.set_value(); });
  answered.get_future().wait();
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(20));
}

TEST_F(StateTest, OpenedAndClosedAtOnceIsTheSame) {
  auto state = open(path);
  ExecOutcome killed = exited(0);
  killed.outcome = Outcome::kKilled;
  killed.exit_code = std::nullopt;
  killed.signal = 9;
  killed.reason = "the client went away";
  state->exec_opened(exec("e1"));
  state->exec_closed("e1", killed);
  state->exec_closed("e1", exited(0));  // the first ending stands
  state->exec_opened(exec("e1"));       // and it is not opened again
  state->exec_closed("never", exited(0));
  auto found = find(*state, "e1");
  ASSERT_TRUE(found.ok() && *found && (*found)->ended);
  EXPECT_EQ((*found)->ended->outcome, Outcome::kKilled);
  EXPECT_EQ((*found)->ended->exit_code, std::nullopt);
  EXPECT_EQ((*found)->ended->signal, 9);
  EXPECT_EQ((*found)->ended->reason, "the client went away");
  found = find(*state, "never");
  EXPECT_TRUE(found.ok() && !*found);
}

TEST_F(StateTest, AReasonIsKeptWithoutItsSecrets) {
  auto state = open(path);
  ExecOutcome unknown = exited(0);
  unknown.reason = "GET https://user:SECRET@engine/ failed, password=SECRET";
  state->exec_opened(exec("e1"));
  state->exec_closed("e1", unknown);
  auto found = find(*state, "e1");
  ASSERT_TRUE(found.ok() && *found && (*found)->ended);
  EXPECT_EQ((*found)->ended->reason.find("SECRET"), std::string::npos) << (*found)->ended->reason;
  EXPECT_NE((*found)->ended->reason.find("[redacted:"), std::string::npos) << (*found)->ended->reason;
}

TEST_F(StateTest, TheFirstEndingStandsAlsoAcrossCommits) {
  auto state = open(path);
  state->exec_opened(exec("e1"));
  ASSERT_TRUE(state->flush().ok());
  state->exec_closed("e1", exited(1));
  ASSERT_TRUE(state->flush().ok());
  state->exec_closed("e1", exited(2));
  auto found = find(*state, "e1");
  ASSERT_TRUE(found.ok() && *found && (*found)->ended);
  EXPECT_EQ((*found)->ended->exit_code, 1);
}

TEST_F(StateTest, WhatWasOpenIsClosedAsUnknownAtTheNextStart) {
  {
    auto state = open(path);
    state->exec_opened(exec("open1", kStart - 4000));
    state->exec_opened(exec("closed"));
    state->exec_opened(exec("open2", kStart + 4000));
    ASSERT_TRUE(state->flush().ok());
    state->exec_closed("closed", exited(0));
  }
  {
    auto state = open(path);
    auto closed = state->close_open_execs("gateway_crash", kStart);
    ASSERT_TRUE(closed.ok());
    ASSERT_EQ(closed->size(), 2u);
    EXPECT_EQ((*closed)[0].exec_id, "open1");
    EXPECT_EQ((*closed)[0].sandbox_id, "isg-1");
    auto again = state->close_open_execs("gateway_crash", kStart);
    EXPECT_TRUE(again.ok() && again->empty());
  }
  auto state = open(path);
  auto found = find(*state, "open1");
  ASSERT_TRUE(found.ok() && *found && (*found)->ended);
  EXPECT_EQ((*found)->ended->outcome, Outcome::kUnknown);
  EXPECT_EQ((*found)->ended->exit_code, std::nullopt);
  EXPECT_EQ((*found)->ended->reason, "gateway_crash");
  EXPECT_EQ((*found)->ended->ended_ms, kStart);
  EXPECT_EQ((*found)->ended->duration_ms, 4000u);
  found = find(*state, "open2");  // a clock that went back
  ASSERT_TRUE(found.ok() && *found && (*found)->ended);
  EXPECT_EQ((*found)->ended->duration_ms, 0u);
  found = find(*state, "closed");
  ASSERT_TRUE(found.ok() && *found && (*found)->ended);
  EXPECT_EQ((*found)->ended->outcome, Outcome::kExited);
}

TEST_F(StateTest, FilesAreForThisUserOnly) {
  ::umask(0);
  auto state = open(path);
  ASSERT_TRUE(put(*state, sandbox("a")).ok());
  struct stat status {};
  ASSERT_EQ(::stat((root + "/front").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  for (const char* suffix : {"", "-wal"}) {
    ASSERT_EQ(::stat((path + suffix).c_str(), &status), 0) << suffix;
    EXPECT_EQ(status.st_mode & 07777, 0600u) << suffix;
  }
  ::umask(022);
}

TEST_F(StateTest, WiderModesAreRefused) {
  open(path).reset();
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_NE(refusal().find("0600"), std::string::npos);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(::chmod((root + "/front").c_str(), 0755), 0);
  EXPECT_NE(refusal().find("0700"), std::string::npos);
  ASSERT_EQ(::chmod((root + "/front").c_str(), 0700), 0);
  EXPECT_TRUE(State::open(path).ok());
}

TEST_F(StateTest, AForeignOwnerIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  open(path).reset();
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal().find("uid 12345"), std::string::npos);
}

TEST_F(StateTest, ALinkOrADirectoryInItsPlaceIsRefused) {
  open(path).reset();
  ASSERT_EQ(::rename(path.c_str(), (path + ".moved").c_str()), 0);
  ASSERT_EQ(::symlink((path + ".moved").c_str(), path.c_str()), 0);
  EXPECT_NE(refusal().find("regular file"), std::string::npos);
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  EXPECT_NE(refusal().find("regular file"), std::string::npos);
  path = root + "/link/state.db";
  ASSERT_EQ(::symlink((root + "/front").c_str(), (root + "/link").c_str()), 0);
  EXPECT_NE(refusal().find("directory"), std::string::npos);
}

TEST_F(StateTest, ARelativePathIsRefused) {
  path = "front/state.db";
  EXPECT_NE(refusal().find("absolute"), std::string::npos);
}

TEST_F(StateTest, ADamagedDatabaseIsNeverReplaced) {
  open(path).reset();
  { std::ofstream(path) << std::string(8192, 'x'); }
  EXPECT_NE(refusal().find(path), std::string::npos);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 8192);
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  EXPECT_NE(refusal().find("empty"), std::string::npos);
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 0);
}

TEST_F(StateTest, DamageInsideIsFound) {
  {
    auto state = open(path);
    for (int i = 0; i < 3000; ++i) {
      state->exec_opened(exec("e" + std::to_string(i)));
      state->exec_closed("e" + std::to_string(i), exited(0));
    }
  }
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  ASSERT_GT(status.st_size, 64 * 4096);
  int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::string rubbish(4096, '\x55');
  for (int page = 20; page < 25; ++page)
    ASSERT_EQ(::pwrite(fd, rubbish.data(), rubbish.size(), page * 4096), 4096);
  ::close(fd);
  EXPECT_NE(refusal().find("state database"), std::string::npos);
}

TEST_F(StateTest, AMissingDatabaseWithALogIsRefused) {
  open(path).reset();
  ASSERT_EQ(::unlink(path.c_str()), 0);
  { std::ofstream(path + "-wal") << "left"; }
  EXPECT_NE(refusal().find("-wal"), std::string::npos);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST_F(StateTest, AForeignDatabaseOrOneOfAnotherSchemaIsRefused) {
  if (std::system("command -v sqlite3 > /dev/null") != 0) GTEST_SKIP() << "sqlite3(1) is not installed";
  open(path).reset();
  for (const char* other : {"0", "2", "8"}) {
    sql(std::string("PRAGMA user_version = ") + other);
    EXPECT_NE(refusal().find(std::string("version ") + other + ", "), std::string::npos) << other;
  }
  sql("PRAGMA user_version = 1; PRAGMA application_id = 7");
  EXPECT_NE(refusal().find("not one of isogate's"), std::string::npos);
}

// SQLite considers all of this valid.
TEST_F(StateTest, ADatabaseWithMoreThanIsogateMakesIsRefused) {
  if (std::system("command -v sqlite3 > /dev/null") != 0) GTEST_SKIP() << "sqlite3(1) is not installed";
  const char* const changes[][2] = {
      {"CREATE VIEW more AS SELECT 1", "DROP VIEW more"},
      {"CREATE TRIGGER more AFTER INSERT ON execs BEGIN DELETE FROM sandboxes; END", "DROP TRIGGER more"},
      {"CREATE TABLE more (x)", "DROP TABLE more"},
      {"ALTER TABLE execs RENAME COLUMN reason TO why", "ALTER TABLE execs RENAME COLUMN why TO reason"},
  };
  open(path).reset();
  for (const auto& [damage, mend] : changes) {
    sql(damage);
    EXPECT_NE(refusal().find("it is damaged ("), std::string::npos) << damage;
    sql(mend);
    EXPECT_NE(open(path), nullptr) << damage;
  }
  sql("DROP TABLE kept_execs; CREATE TABLE kept_execs (seq INTEGER PRIMARY KEY, deadline_ms, flags, "
      "kept_bytes)");
  EXPECT_NE(refusal().find("it is damaged ("), std::string::npos) << "its checks are gone";
}

TEST_F(StateTest, ADatabaseWithWhatIsogateNeverWritesIsRefused) {
  if (std::system("command -v sqlite3 > /dev/null") != 0) GTEST_SKIP() << "sqlite3(1) is not installed";
  const char* const rows[][2] = {
      {"sandboxes", "'isg-1', 't', 'a', 'docker', 'h', 'root', 20, 1, 2, 'active', NULL, '', 0, ''"},
      {"sandboxes", "'isg-1', 't', 'a', 'docker', 'h', 4294967296, 20, 1, 2, 'active', NULL, '', 0, ''"},
      {"sandboxes", "'isg-1', 't', 'a', 'docker', 'h', 7, 20, 1, 2, 'open', NULL, '', 0, ''"},
      {"sandboxes", "'isg-1', 't', 'a', 'docker', 'h', 7, 20, 1, 2, 'active', 'much', '', 0, ''"},
      {"sandboxes", "'isg-1', 't', 'a', 'docker', 'h', 7, 20, 1, 2, 'active', NULL, x'00', 0, ''"},
      {"sandboxes", "'isg-1', 't', 'a', 'docker', 'h', 7, 20, 1, 2, 'active', NULL, '', -1, ''"},
      {"sandboxes", "'isg-1', 't', 'a', 'docker', 'h', 7, 20, 1, 2, 'active', NULL, '', 0, x'00'"},
      {"execs", "9223372036854775807, 'e', 's', 't', 'b', 'r', 'c', 1, NULL, '', NULL, 0, '', 0, 0, 0"},
      {"execs", "1, 'e', 's', 't', 'b', 'r', 'c', 1, NULL, '', NULL, 0, '', 'many', 0, 0"},
      {"kept_execs", "1, 'soon', 0, 0"},
      {"kept_execs", "1, 5, 4, 0"},
      {"kept_execs", "1, 5, 0, -1"},
  };
  open(path).reset();
  for (const auto& [table, values] : rows) {
    sql_past_checks(std::string("INSERT INTO ") + table + " VALUES (" + values + ")");
    EXPECT_NE(refusal().find("it is damaged ("), std::string::npos) << values;
    sql(std::string("DELETE FROM ") + table);
    EXPECT_NE(open(path), nullptr) << values;
  }
}

TEST_F(StateTest, WhatItsBackendKeepsStaysOpen) {
  ExecRow kept = exec("kept"), other = exec("other"), over = exec("over");
  kept.kept = KeptTerms{kStart + 5000, true, false, 1000};
  over.kept = KeptTerms{kStart + 5000, false, true, 1000};
  {
    auto state = open(path);
    for (const ExecRow& each : {kept, other, over}) state->exec_opened(each);
    ASSERT_TRUE(state->flush().ok());
    state->exec_closed("over", ExecOutcome{.ended_ms = kStart + 1, .outcome = Outcome::kExited});
    ASSERT_TRUE(state->flush().ok());
  }
  for (int starts = 0; starts < 2; ++starts) {
    auto state = open(path);
    const auto left = state->close_open_execs("gateway_crash", kStart + 10);
    ASSERT_TRUE(left.ok());
    ASSERT_EQ(left->size(), starts == 0 ? 2u : 1u);
    const ExecRow& first = left->front();
    EXPECT_EQ(first.exec_id, "kept");
    EXPECT_FALSE(first.ended);
    ASSERT_TRUE(first.kept);
    EXPECT_EQ(first.kept->deadline_ms, kStart + 5000);
    EXPECT_TRUE(first.kept->stdin_open);
    EXPECT_FALSE(first.kept->pty);
    EXPECT_EQ(first.kept->kept_bytes, 1000u);
  }
  auto state = open(path);
  state->exec_closed("kept", ExecOutcome{.ended_ms = kStart + 20, .outcome = Outcome::kExited});
  ASSERT_TRUE(state->flush().ok());
  EXPECT_TRUE(state->close_open_execs("gateway_crash", kStart + 30)->empty());
}

// A clock is set, or stands while the machine sleeps.
TEST_F(StateTest, WhatEndsLaterIsATimeOfDayOnDisk) {
  constexpr int64_t kHour = 3'600'000;
  std::atomic<int64_t> ahead{0};
  State::Options options;
  options.clock_ahead_ms = [&ahead] { return ahead.load(); };
  const auto expiring = [](const std::string& id, int64_t expires_ms) {
    SandboxRow row = sandbox(id);
    row.expires_ms = expires_ms;
    return row;
  };
  const auto expiries = [](State& state) {
    std::vector<int64_t> all;
    for (const SandboxRow& row : sandboxes(state)) all.push_back(row.expires_ms);
    return all;
  };
  {
    auto state = open(path, options);
    ASSERT_TRUE(put(*state, expiring("a", kStart + kHour)).ok());
    ASSERT_TRUE(put(*state, sandbox("b")).ok());
    ExecRow kept = exec("kept");
    kept.kept = KeptTerms{kStart + kHour, true, false, 1000};
    state->exec_opened(kept);
    ASSERT_TRUE(state->flush().ok());
    ahead = 5 * kHour;
    state->follow_clock();
    ahead = 5 * kHour + 1500;  // drift
    state->follow_clock();
    ASSERT_TRUE(put(*state, expiring("c", kStart + 2 * kHour)).ok());
    EXPECT_EQ(expiries(*state), (std::vector<int64_t>{kStart + kHour, 0, kStart + 2 * kHour}));
  }
  // The next gateway counts from its own start.
  for (const int64_t other : {int64_t{0}, -kHour}) {
    ahead = other;
    auto state = open(path, options);
    EXPECT_EQ(expiries(*state),
              (std::vector<int64_t>{kStart + 6 * kHour - other, 0, kStart + 7 * kHour - other}));
    const auto open_ones = state->close_open_execs("gateway_crash", kStart);
    ASSERT_TRUE(open_ones.ok());
    ASSERT_EQ(open_ones->size(), 1u);
    EXPECT_EQ(open_ones->front().kept->deadline_ms, kStart + 6 * kHour - other);
  }
}

TEST_F(StateTest, ItsMakingMayBeInterrupted) {
  ASSERT_EQ(::mkdir((root + "/front").c_str(), 0700), 0);
  { std::ofstream(path + ".new") << "half"; }
  auto state = open(path);
  ASSERT_NE(state, nullptr);
  EXPECT_NE(::access((path + ".new").c_str(), F_OK), 0);
}

TEST_F(StateTest, ASecondProcessIsRefused) {
  int go[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  pid_t child = ::fork();  // before this process has threads
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte;
    if (::read(go[0], &byte, 1) != 1) ::_exit(3);
    Result<std::unique_ptr<State>> second = State::open(path);
    ::_exit(second.ok() ? 1 : second.error().message.find("another process") == std::string::npos ? 2 : 0);
  }
  auto state = open(path);
  EXPECT_EQ(::write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ::close(go[0]);
  ::close(go[1]);
}

TEST_F(StateTest, EightThreadsLoseNothing) {
  constexpr int kThreads = 8, kEach = 1000;
  State::Options options;
  options.max_closed_execs = kThreads * kEach;
  auto state = open(path, options);
  std::atomic<int> put_ok{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        std::string id = std::to_string(t) + "-" + std::to_string(i);
        state->exec_opened(exec(id));
        if (i % 10 == 0)
          state->put_sandbox(sandbox(id), [&](Result<void> done) { put_ok += done.ok() ? 1 : 0; });
        state->touch_sandbox("isg-" + std::to_string(t) + "-0", 1700000000000 + i);
        if (i % 100 == 0)
          state->find_exec(id,
                           [](Result<std::optional<ExecRow>> found) { EXPECT_TRUE(found.ok() && *found); });
        if (i % 3 != 0) state->exec_closed(id, exited(i));
      }
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(state->flush().ok());
  EXPECT_EQ(put_ok, kThreads * kEach / 10);
  state.reset();
  state = open(path);
  EXPECT_EQ(sandboxes(*state).size(), static_cast<size_t>(kThreads * kEach / 10));
  for (int t = 0; t < kThreads; ++t)
    for (int i = 1; i < kEach; i += 97) {
      auto found = find(*state, std::to_string(t) + "-" + std::to_string(i));
      ASSERT_TRUE(found.ok() && *found);
      ASSERT_EQ((*found)->ended.has_value(), i % 3 != 0);
      ASSERT_TRUE(!(*found)->ended || (*found)->ended->exit_code == i);
    }
  auto open_ones = state->close_open_execs("gateway_crash", kStart);
  ASSERT_TRUE(open_ones.ok());
  EXPECT_EQ(open_ones->size(), static_cast<size_t>(kThreads * ((kEach + 2) / 3)));
}

// The child reports each commit on the pipe, after it; what it reported must be there.
[[noreturn]] void write_until_killed(const std::string& path, int report) {
  Result<std::unique_ptr<State>> state = State::open(path);
  if (!state.ok()) ::_exit(1);
  for (int i = 0;; ++i) {
    std::string id = std::to_string(i);
    (*state)->exec_opened(exec("open-" + id));
    (*state)->exec_opened(exec("done-" + id));
    (*state)->exec_closed("done-" + id, exited(0));
    if (!put(**state, sandbox(id)).ok()) ::_exit(1);
    if (::write(report, &i, sizeof i) != sizeof i) ::_exit(1);
  }
}

TEST_F(StateTest, WhatWasCommittedOutlivesAKill) {
  for (int round = 0; round < 5; ++round) {
    path = root + "/front" + std::to_string(round) + "/state.db";
    int report[2];
    ASSERT_EQ(::pipe2(report, O_CLOEXEC), 0);
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_until_killed(path, report[1]);
    ::close(report[1]);
    int last = -1;
    while (last < 20 + 37 * round)
      ASSERT_EQ(::read(report[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    while (::read(report[0], &last, sizeof last) == static_cast<ssize_t>(sizeof last)) {
    }
    ::close(report[0]);

    auto state = open(path);
    ASSERT_NE(state, nullptr);
    std::set<std::string> ids;
    for (const SandboxRow& row : sandboxes(*state)) ids.insert(row.sandbox_id);
    for (int i = 0; i <= last; ++i) ASSERT_TRUE(ids.count("isg-" + std::to_string(i))) << i << " of " << last;
    auto closed = state->close_open_execs("gateway_crash", kStart);
    ASSERT_TRUE(closed.ok());
    std::set<std::string> open_ones;
    for (const ExecRow& row : *closed) open_ones.insert(row.exec_id);
    for (int i = 0; i <= last; ++i)
      ASSERT_TRUE(open_ones.count("open-" + std::to_string(i))) << i << " of " << last;
    for (const std::string& id : open_ones) ASSERT_EQ(id.substr(0, 5), "open-");
  }
}

TEST_F(StateTest, ClosedExecsArePrunedOpenOnesNever) {
  State::Options options;
  options.max_closed_execs = 100;
  options.max_closed_age_ms = INT64_MAX / 4;
  {
    auto state = open(path, options);
    state->exec_opened(exec("still-open"));
    for (int i = 0; i < 5000; ++i) {
      state->exec_opened(exec("e" + std::to_string(i)));
      state->exec_closed("e" + std::to_string(i), exited(0));
      ASSERT_TRUE(i % 1000 != 999 || state->flush().ok());
    }
    ASSERT_TRUE(state->flush().ok());
    auto found = find(*state, "e0");
    EXPECT_TRUE(found.ok() && !*found);
    found = find(*state, "e4999");
    EXPECT_TRUE(found.ok() && *found);
    found = find(*state, "still-open");
    EXPECT_TRUE(found.ok() && *found);
  }
  auto state = open(path, options);
  auto open_ones = state->close_open_execs("gateway_crash", kStart + 1000);
  ASSERT_TRUE(open_ones.ok());
  ASSERT_EQ(open_ones->size(), 1u);
  EXPECT_EQ((*open_ones)[0].exec_id, "still-open");
  for (int prunings = 0; prunings < 2; ++prunings) {
    auto found = find(*state, "e0");
    EXPECT_TRUE(found.ok() && !*found);
    found = find(*state, "still-open");
    ASSERT_TRUE(found.ok() && *found && (*found)->ended) << prunings;
    EXPECT_EQ((*found)->ended->outcome, Outcome::kUnknown);
    for (int i = 0; i < 2500; ++i) {
      const std::string id = std::to_string(prunings) + "-" + std::to_string(i);
      state->exec_opened(exec(id));
      state->exec_closed(id, exited(0));
    }
    ASSERT_TRUE(state->flush().ok());
  }
}

TEST_F(StateTest, ATenantsExecsPushOutNoneOfAnother) {
  State::Options options;
  options.max_closed_execs = 100;
  std::unique_ptr<State> state = open(path, options);
  const auto run_as = [&](const std::string& tenant, int count) {
    for (int i = 0; i < count; ++i) {
      ExecRow row = exec(tenant + std::to_string(i));
      row.tenant = tenant;
      state->exec_opened(row);
      state->exec_closed(row.exec_id, exited(0));
    }
    ASSERT_TRUE(state->flush().ok());
  };
  run_as("b", 30);
  run_as("a", 5000);
  run_as("c", 1);
  state.reset();
  state = open(path, options);  // which prunes
  ASSERT_TRUE(state->flush().ok());
  const auto kept = [&](const std::string& id) {
    const auto found = find(*state, id);
    return found.ok() && found->has_value();
  };
  EXPECT_TRUE(kept("b0"));
  EXPECT_TRUE(kept("c0"));
  EXPECT_TRUE(kept("a4999"));
  EXPECT_TRUE(kept("a4931")) << "what the others do not need";
  EXPECT_FALSE(kept("a4930"));
}

TEST_F(StateTest, OldExecsArePruned) {
  State::Options options;
  options.max_closed_age_ms = 30'000;  // these ended a minute ago
  auto state = open(path, options);
  for (int i = 0; i < 2500; ++i) {
    state->exec_opened(exec("e" + std::to_string(i)));
    ExecOutcome outcome = exited(0);
    if (i == 1) outcome.ended_ms += 3600'000;  // however long the previous tests took
    state->exec_closed("e" + std::to_string(i), outcome);
  }
  ASSERT_TRUE(state->flush().ok());
  auto found = find(*state, "e0");
  EXPECT_TRUE(found.ok() && !*found);
  found = find(*state, "e1");
  EXPECT_TRUE(found.ok() && *found);
}

// A file system of half a megabyte, unmounted at the end.
class FullDisk : public StateTest {
 protected:
  void SetUp() override {
    StateTest::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "mounting a small tmpfs needs root";
    disk = root + "/disk";
    ASSERT_EQ(::mkdir(disk.c_str(), 0700), 0);
    if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=512k,mode=0700") != 0) {
      int reason = errno;
      disk.clear();
      GTEST_SKIP() << "cannot mount a tmpfs here: " << strerror(reason);
    }
    path = disk + "/front/state.db";
  }
  void TearDown() override {
    if (!disk.empty()) ::umount2(disk.c_str(), MNT_DETACH);
    StateTest::TearDown();
  }
  void fill() const {
    std::ofstream ballast(disk + "/ballast");
    std::string block(4096, 'x');
    while (ballast.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  std::string disk;
};

struct Health {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<Error>> told;
  State::OnHealth listener() {
    return [this](const std::optional<Error>& error) {
      std::lock_guard lock(mutex);
      told.push_back(error);
      changed.notify_all();
    };
  }
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(30), [&] { return told.size() >= count; });
  }
};

TEST_F(FullDisk, IsReportedAndNothingIsLostOnceThereIsRoomAgain) {
  Health health;
  State::Options options;
  options.on_health = health.listener();
  auto state = open(path, options);
  ASSERT_TRUE(put(*state, sandbox("before")).ok());
  fill();
  Result<void> failed;
  for (int i = 0; i < 2000 && failed.ok(); ++i) failed = put(*state, sandbox("full-" + std::to_string(i)));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().status, ISOGATE_RESOURCE_EXHAUSTED) << failed.error().message;
  ASSERT_TRUE(health.wait_for(1));
  EXPECT_TRUE(health.told[0]);
  EXPECT_TRUE(state->last_error());
  EXPECT_FALSE(state->flush().ok());

  state->exec_opened(exec("kept"));
  EXPECT_FALSE(state->flush().ok());
  state->exec_closed("kept", exited(4));  // closed while its opening is not written yet
  state->exec_opened(exec("kept-too"));
  EXPECT_FALSE(state->flush().ok());

  ASSERT_EQ(::unlink((disk + "/ballast").c_str()), 0);
  ASSERT_TRUE(health.wait_for(2)) << "it retries by itself";
  EXPECT_FALSE(health.told[1]);
  EXPECT_FALSE(state->last_error());
  auto found = find(*state, "kept");
  ASSERT_TRUE(found.ok() && *found && (*found)->ended);
  EXPECT_EQ((*found)->ended->exit_code, 4);
  found = find(*state, "kept-too");
  EXPECT_TRUE(found.ok() && *found);
  EXPECT_TRUE(put(*state, sandbox("after")).ok());
}

TEST_F(FullDisk, ExecsAreFoundMeanwhile) {
  auto state = open(path);
  for (const char* id : {"ended", "running"}) state->exec_opened(exec(id));
  state->exec_closed("ended", exited(3));
  ASSERT_TRUE(state->flush().ok());
  fill();
  Result<void> failed;
  for (int i = 0; i < 2000 && failed.ok(); ++i) failed = put(*state, sandbox("full-" + std::to_string(i)));
  ASSERT_FALSE(failed.ok());
  state->exec_closed("running", exited(4));
  for (const char* id : {"new", "new-and-ended"}) state->exec_opened(exec(id));
  state->exec_closed("new-and-ended", exited(5));
  EXPECT_FALSE(state->flush().ok());
  for (const auto& [id, code] : {std::pair("ended", 3), {"running", 4}, {"new", -1}, {"new-and-ended", 5}}) {
    Result<std::optional<ExecRow>> found = Error{};
    state->find_exec(id, [&](auto answer) { found = std::move(answer); });
    EXPECT_FALSE(state->flush().ok());
    ASSERT_TRUE(found.ok() && *found) << id << ": " << (found.ok() ? "" : found.error().message);
    EXPECT_EQ((*found)->exec_id, id);
    EXPECT_EQ((*found)->ended ? (*found)->ended->exit_code.value_or(-2) : -1, code) << id;
  }
  Result<std::optional<ExecRow>> none = Error{};
  state->find_exec("none", [&](auto answer) { none = std::move(answer); });
  EXPECT_FALSE(state->flush().ok());
  EXPECT_TRUE(none.ok() && !*none);
}

TEST_F(FullDisk, GivesUpRecordsAloudBeyondItsBound) {
  Health health;
  State::Options options;
  options.on_health = health.listener();
  options.max_pending_execs = 50;
  auto state = open(path, options);
  fill();
  Result<void> failed;
  for (int i = 0; i < 2000 && failed.ok(); ++i) failed = put(*state, sandbox("full-" + std::to_string(i)));
  ASSERT_FALSE(failed.ok());
  for (int i = 0; i < 80; ++i) {
    state->exec_opened(exec("e" + std::to_string(i)));
    state->exec_closed("e" + std::to_string(i), exited(0));
  }
  EXPECT_FALSE(state->flush().ok());
  ASSERT_EQ(::unlink((disk + "/ballast").c_str()), 0);
  ASSERT_TRUE(health.wait_for(3));
  ASSERT_TRUE(health.told[1]);
  EXPECT_EQ(health.told[1]->message, "30 exec records were given up, the state database could not keep up");
  EXPECT_FALSE(health.told[2]);
  ASSERT_TRUE(state->flush().ok());
  for (size_t i = 0; i < 80; ++i) {
    const auto found = find(*state, "e" + std::to_string(i));
    EXPECT_TRUE(found.ok() && found->has_value() == (i < options.max_pending_execs)) << i;
  }
}

TEST_F(FullDisk, IsAnErrorOfOpenToo) {
  fill();
  EXPECT_NE(refusal(), "");
  ASSERT_EQ(::unlink((disk + "/ballast").c_str()), 0);
  EXPECT_TRUE(State::open(path).ok()) << "nothing incomplete was left";
}

}  // namespace
}  // namespace isogate::front
