#include <sqlite3.h>

#include "tests/faults/disk.h"
#include "tests/faults/faults.h"

// A disk that is full, read-only or broken, below the records or below the workspaces. What needs it is
// refused with a reason, what does not continues, and nothing is torn once the disk is repaired.
namespace isogate::test {
namespace {

struct Way {
  const char* name;
  int below_mb;
  void (*spoil)(const Disk&);
};

void PrintTo(const Way& way, std::ostream* to) { *to << way.name; }

class BadDisk : public testing::TestWithParam<Way> {
 protected:
  BadDisk() : disk_(16, GetParam().below_mb) {}
  void SetUp() override {
    SKIP_UNLESS_STARTABLE();
    if (!disk_.usable()) GTEST_SKIP() << "no file system can be mounted here";
  }
  [[nodiscard]] bool is_full() const { return std::string_view(GetParam().name) == "full"; }
  [[nodiscard]] bool is_read_only() const { return std::string_view(GetParam().name) == "read_only"; }
  void spoil() { GetParam().spoil(disk_); }
  // A full disk gets room again while the gateway runs; the other faults are repaired after its end.
  void mend() {
    if (is_full()) return disk_.make_room();
    gateway_->signal(SIGTERM);
    EXPECT_NE(gateway_->wait(45), -1) << "it cannot be ended: " << gateway_->log();
    const std::string state_dir = gateway_->state_dir();
    gateway_.reset();
    disk_.repair();
    gateway_ = start(yaml_, state_dir);
  }
  void begin(const std::string& yaml, const std::string& state_dir) {
    yaml_ = yaml;
    gateway_ = start(yaml, state_dir);
  }
  // No other test has these agents: while the disk is not mounted its uids could be given to them.
  [[nodiscard]] Caller me(const std::string& agent = "me") const {
    return {*gateway_, std::string("disk-") + GetParam().name + "-" + agent};
  }

  Disk disk_;
  TemporaryDirectory elsewhere_;
  std::string yaml_;
  std::unique_ptr<Gateway> gateway_;
};

std::string integrity_of(const std::string& state_dir) {
  sqlite3* database = nullptr;
  std::string said;
  if (sqlite3_open((state_dir + "/front/state.db").c_str(), &database) == SQLITE_OK)
    sqlite3_exec(
        database, "PRAGMA integrity_check",
        [](void* to, int, char** text, char**) {
          *static_cast<std::string*>(to) += text[0];
          return 0;
        },
        &said, nullptr);
  sqlite3_close(database);
  return said;
}

TEST_P(BadDisk, OfTheRecordsRefusesNewSandboxesAndTearsNothing) {
  begin(std::string(kLocal) + "workdir: " + elsewhere_.path() + "\n", disk_.path() + "/state");
  const Json before = me().run("echo kept > file; echo before");
  ASSERT_EQ(before.at("stdout"), "before\n");
  me("barrier").run(
      "true");  // the response to a first use means that it is on disk, and so is everything before it
  ExecStream witness(me(), {{"command", "while [ ! -e go ]; do sleep 0.05; done; echo lived"}}, 60);
  ASSERT_EQ(witness.next()->at("event"), "start");
  spoil();
  Answer last;
  for (int i = 0; i < 100; ++i)  // an existing block may hold some more
    if (last = me("new-" + std::to_string(i)).exec("echo works"); last.status != 200) break;
  const Answer later = me("later").exec("echo works");
  for (const Answer& answer : {last, later}) {
    const bool by_file = answer.text.find("Input/output error") != std::string::npos;  // as its disk says
    EXPECT_TRUE(by_file ? refused(answer, 500, "internal") : refused(answer, 507, "quota_exceeded"));
    EXPECT_NE(answer.text.find("cannot"), std::string::npos) << answer.text;
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(me().out("cat file; echo meanwhile"), "kept\nmeanwhile\n");
  EXPECT_TRUE(succeeded(me().write("other", "whole")));
  EXPECT_EQ(me().get("/readyz").status, 200) << "what is open is served";
  EXPECT_TRUE(refused(me().get("/execs/" + std::string(32, '0')), 404, "exec_not_found"));
  const Answer journaled = me().get("/execs/" + before.at("exec_id").get<std::string>());
  ASSERT_TRUE(succeeded(journaled)) << "the journal can be read";
  EXPECT_EQ(journaled.body.at("outcome"), "exited");
  if (is_read_only()) {  // where it is full the records have a reserve
    EXPECT_NE(later.text.find("the state store cannot be written"), std::string::npos) << later.text;
    EXPECT_NE(gateway_->log().find("state_not_writable"), std::string::npos) << "the log does not report it";
    EXPECT_NE(me().get("/readyz?verbose").text.find("not writable"), std::string::npos);
  }
  EXPECT_TRUE(succeeded(me().write("go", "")));
  const auto events = witness.rest();
  EXPECT_EQ(data_of(events, "stdout"), "lived\n");
  EXPECT_EQ(events.back().at("outcome"), "exited");

  mend();
  EXPECT_TRUE(eventually(10, [&] { return me("later").exec("echo works").status == 200; }))
      << me("later").exec("true").text;
  EXPECT_EQ(me().out("cat file other"), "kept\nwhole");
  gateway_->stop();
  EXPECT_EQ(integrity_of(gateway_->state_dir()), "ok");
  auto journal = journal_of(gateway_->state_dir());
  EXPECT_EQ(journal["echo kept > file; echo before"].outcome, "exited");
  for (const auto& [command, row] : journal) EXPECT_TRUE(row.ended) << command;
  EXPECT_TRUE(!is_full() || journal["cat file; echo meanwhile"].outcome == "exited")
      << "what ran meanwhile is missing in the journal";
}

TEST_P(BadDisk, OfTheWorkspacesCostsOnlyFiles) {
  begin(std::string(kLocal) + "workdir: " + disk_.path() + "\n", elsewhere_.path() + "/state");
  ASSERT_TRUE(
      succeeded(me().write("file", "old", {{"durable", true}})));  // its workspace is on the disk then
  ASSERT_EQ(me().out("echo before"), "before\n");
  spoil();
  const std::string more(1 << 20, 'x');
  for (const char* how : {"file?durable=true", "fresh?durable=true"}) {
    const Answer answer = me().call("PUT", me().file_url(how), {}, more);
    EXPECT_GE(answer.status, 400) << how << ": " << answer.text;
    EXPECT_TRUE(answer.body.contains("error")) << answer.text;
    EXPECT_TRUE(!is_full() || refused(answer, 507, "quota_exceeded"));
  }
  EXPECT_GE(me().write("file", more, {{"durable", true}}).status, 400);
  EXPECT_EQ(me().content("file"), "old") << "it is part of the new content";
  EXPECT_TRUE(refused(me().read("fresh"), 404, "file_not_found"));
  EXPECT_EQ(me().out("ls -A"), "file\n") << "an incomplete file is left";
  EXPECT_NE(me().run("head -c 1M /dev/zero > mine && sync mine").at("exit_code"), 0) << "it is not bad";
  EXPECT_EQ(me().get("/readyz").status, 200);

  mend();
  EXPECT_TRUE(eventually(10, [&] { return me().read("file").status == 200; }));
  EXPECT_EQ(me().content("file"), "old");
  EXPECT_TRUE(eventually(10, [&] { return me().write("file", "new").status == 200; }))
      << "the room of what was removed is not used";
  EXPECT_EQ(me().content("file"), "new");
  EXPECT_EQ(me("later").out("echo works"), "works\n");
}

INSTANTIATE_TEST_SUITE_P(Ways, BadDisk,
                         testing::Values(Way{"full", 0, [](const Disk& disk) { disk.fill(); }},
                                         Way{"read_only", 0, [](const Disk& disk) { disk.make_read_only(); }},
                                         Way{"broken", 10, [](const Disk& disk) { disk.fill_below(); }}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace isogate::test
