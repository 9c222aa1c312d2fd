#include <signal.h>

#include <algorithm>
#include <thread>

#include "tests/faults/faults.h"

// Parts of the gateway, or all of it, are killed while programs run.
namespace isogate::test {
namespace {

class GatewayKilled : public testing::Test {
 protected:
  void SetUp() override { SKIP_UNLESS_STARTABLE(); }

  // A tree of this agent that has detached itself in every way.
  static std::unique_ptr<ExecStream> tree(const Caller& me, const std::string& mark) {
    const Json request{
        {"command", "echo up; setsid -f sleep " + mark + "; (sleep " + mark + " &); sleep " + mark},
        {"timeout_sec", 600}};
    auto stream = std::make_unique<ExecStream>(me, request);
    EXPECT_EQ(stream->next()->at("event"), "start");
    EXPECT_TRUE(there_within(10, mark, 3));
    // The response to a first use means that it is on disk, and so is everything before it.
    me.as("barrier-" + mark).run("true");
    return stream;
  }

  static std::string command_of(const std::string& mark) {
    return "echo up; setsid -f sleep " + mark + "; (sleep " + mark + " &); sleep " + mark;
  }
};

// What a client of a stream may see when contact is lost: an exit event with `unknown`, or an end
// without one, which is an error. Never success.
void expect_lost(ExecStream& stream) {
  try {
    const auto events = stream.rest();
    if (!events.empty() && events.back().at("event") == "exit") {
      const Json& end = events.back();
      const bool unknown = end.at("outcome") == "unknown" && end.at("exit_code").is_null();
      const bool killed =
          end.at("outcome") == "killed" && end.at("exit_code") == 137;  // its host outlived the rest
      EXPECT_TRUE(unknown || killed) << end;
    }
  } catch (const std::runtime_error&) {  // cut off in the middle
  }
}

TEST_F(GatewayKilled, AllOfItAtOnceLeavesNothing) {
  std::string state_dir;
  std::vector<std::unique_ptr<Gateway>> all;
  std::vector<std::string> marks;
  for (int round = 0; round < 3; ++round) {
    all.push_back(start(kLocal, state_dir));
    state_dir = all.front()->state_dir();
    Gateway& gateway = *all.back();
    const Caller me(gateway, "a");
    if (round > 0) {
      EXPECT_EQ(me.content("file"), "kept") << "of an earlier gateway";
    }
    ASSERT_TRUE(succeeded(me.write("file", "kept")));
    marks.push_back(new_mark());
    const auto stream = tree(me, marks.back());
    const auto processes = processes_of(gateway);
    for (const pid_t pid : processes) ::kill(pid, SIGSTOP);  // none notices another's end
    for (const pid_t pid : processes) ::kill(pid, SIGKILL);
    EXPECT_TRUE(gone_within(2, marks.back())) << "a tree outlived its gateway";
    EXPECT_EQ(gateway.wait(5), 128 + SIGKILL);
    expect_lost(*stream);
  }
  const auto last = start(kLocal, state_dir);
  EXPECT_EQ(Caller(*last, "a").content("file"), "kept");
  last->stop();
  auto journal = journal_of(state_dir);
  for (const std::string& mark : marks) {
    const JournalRow row = journal[command_of(mark)];
    EXPECT_TRUE(row.ended);
    EXPECT_EQ(row.outcome, "unknown");
    EXPECT_EQ(row.reason, "gateway_crash");
  }
  for (const auto& [command, row] : journal) EXPECT_TRUE(row.ended) << command;
}

// The watcher of its cgroups is killed with it, so that nothing ends its trees before the next start.
TEST_F(GatewayKilled, WhatOutlivedItIsReapedAtTheNextStart) {
  const auto gateway = start(kLocal);
  if (backend_row(Caller(*gateway, "a"), "local").at("detail").dump().find("cgroup2 leaf") ==
      std::string::npos)
    GTEST_SKIP() << "here trees are not in cgroups";
  const std::string mark = new_mark();
  const auto stream = tree(Caller(*gateway, "a"), mark);
  std::vector<pid_t> all = descendants_of(gateway->pid());
  all.push_back(gateway->pid());
  const std::vector<pid_t> programs = marked(mark);
  std::erase_if(all, [&](pid_t pid) { return std::count(programs.begin(), programs.end(), pid) > 0; });
  for (const pid_t pid : all) ::kill(pid, SIGSTOP);  // none notices another's end
  for (const pid_t pid : all)
    EXPECT_TRUE(eventually(5, [&] { return stands_still(pid); })) << command_line(pid);
  for (const pid_t pid : all) ::kill(pid, SIGKILL);
  EXPECT_EQ(gateway->wait(5), 128 + SIGKILL);
  expect_lost(*stream);
  if (gone_within(0.5, mark)) GTEST_SKIP() << "nothing outlives it here";
  const auto next = start(kLocal, gateway->state_dir());
  EXPECT_TRUE(gone_within(2, mark)) << marked(mark).size() << " processes of an earlier gateway still run";
  next->stop();
  const JournalRow row = journal_of(next->state_dir())[command_of(mark)];
  EXPECT_EQ(row.outcome, "unknown");
  EXPECT_EQ(row.reason, "gateway_crash");
}

TEST_F(GatewayKilled, AHostCostsOnlyItsCalls) {
  const auto gateway = start(kLocal);
  const Caller me(*gateway, "a");
  ASSERT_TRUE(succeeded(me.write("file", "kept")));
  const std::string mark = new_mark(), other = new_mark();
  const auto stream = tree(me, mark);
  Answer plain;
  std::thread caller([&] { plain = me.exec("echo half; sleep " + other, {{"timeout_sec", 600}}); });
  ASSERT_TRUE(eventually(10, [&] {  // it has printed its half by then
    const auto found = marked(other);
    return std::any_of(found.begin(), found.end(),
                       [](pid_t pid) { return command_line(pid).starts_with("sleep"); });
  }));
  const pid_t front = front_of(*gateway), host = host_of(*gateway, "local");
  ::kill(host, SIGKILL);
  caller.join();
  EXPECT_TRUE(refused(plain, 502, "outcome_unknown"));
  const Json partial = plain.body.at("error").at("details");
  EXPECT_EQ(partial.value("outcome", ""), "unknown") << plain.text;
  EXPECT_TRUE(partial.at("exit_code").is_null()) << plain.text;
  EXPECT_EQ(partial.value("stdout", ""), "half\n");
  const auto events = stream->rest();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().at("event"), "exit");
  EXPECT_EQ(events.back().at("outcome"), "unknown");
  EXPECT_TRUE(gone_within(1, mark) && gone_within(1, other)) << "a tree outlived its host";
  EXPECT_TRUE(works_within(2, me)) << "it is not restarted within 2 s";
  EXPECT_EQ(me.content("file"), "kept");
  EXPECT_EQ(front_of(*gateway), front) << "the front was restarted";
  EXPECT_NE(host_of(*gateway, "local"), host);
  const Json row = backend_row(me, "local");
  EXPECT_EQ(row.at("restarts"), 1);
  EXPECT_GE(row.at("generation").get<int>(), 2);
}

TEST_F(GatewayKilled, TheFrontComesBack) {
  const auto gateway = start(kLocal);
  const Caller me(*gateway, "a");
  ASSERT_TRUE(succeeded(me.write("file", "kept")));
  const std::string mark = new_mark();
  const auto stream = tree(me, mark);
  const pid_t front = front_of(*gateway);
  ::kill(front, SIGKILL);
  // Meanwhile callers wait in the queue of the socket, which the supervisor keeps open.
  EXPECT_EQ(http_call(gateway->url(), "GET", "/livez").status, 200);
  EXPECT_NE(front_of(*gateway), front);
  expect_lost(*stream);
  EXPECT_TRUE(gone_within(2, mark)) << "a tree outlived the front that it ran for";
  EXPECT_TRUE(works_within(10, me));
  EXPECT_EQ(me.content("file"), "kept");
  EXPECT_EQ(backend_row(me, "local").at("verdict"), "available");
  gateway->stop();
  const JournalRow row = journal_of(gateway->state_dir())[command_of(mark)];
  EXPECT_EQ(row.outcome, "unknown");
  EXPECT_EQ(row.reason, "gateway_crash");
}

TEST_F(GatewayKilled, TheSupervisorTakesAllWithIt) {
  auto gateway = start(kLocal);
  const std::string mark = new_mark();
  const auto stream = tree(Caller(*gateway, "a"), mark);
  const std::vector<pid_t> all = processes_of(*gateway);
  ASSERT_GE(all.size(), 3u);
  ::kill(gateway->pid(), SIGKILL);
  EXPECT_TRUE(gone_within(3, mark)) << "a tree outlived its supervisor";
  EXPECT_EQ(gateway->wait(5), 128 + SIGKILL);
  EXPECT_TRUE(eventually(5, [&] { return !alive(all[1]) && !alive(all[2]); }))
      << "a child of the supervisor still runs";
  expect_lost(*stream);
  const auto next = start(kLocal, gateway->state_dir());
  EXPECT_TRUE(works_within(5, Caller(*next, "a")));
}

TEST_F(GatewayKilled, FiveDeadHostsInAMinuteAreEnough) {
  const auto gateway = start(kLocal);
  const Caller me(*gateway, "a");
  for (int i = 0; i < 5; ++i) {
    pid_t host = -1;
    ASSERT_TRUE(eventually(10, [&] { return (host = host_of(*gateway, "local")) > 0; }))
        << "after " << i << " crashes";
    ::kill(host, SIGKILL);
    ASSERT_TRUE(eventually(5, [&] { return !alive(host); }));
  }
  EXPECT_TRUE(eventually(5, [&] { return backend_row(me, "local").at("verdict") == "quarantined"; }))
      << backend_row(me, "local");
  const Answer answer = me.exec("true");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_NE(answer.text.find("quarantined"), std::string::npos) << answer.text;
  EXPECT_EQ(me.get("/livez").status, 200);
  EXPECT_EQ(me.get("/readyz").status, 503);
  gateway->signal(SIGHUP);
  EXPECT_TRUE(works_within(10, me)) << "a reload does not bring it back";
}

// The end of the body's pipe does not show who closed it.
TEST_F(GatewayKilled, TheFrontMidUploadCommitsNothing) {
  const auto gateway = start(kLocal);
  const Caller me(*gateway, "a");
  ASSERT_TRUE(succeeded(me.write("file", "whole")));
  const std::string part(256 << 10, 'x');
  for (int round = 0; round < 8; ++round) {
    ASSERT_TRUE(works_within(10, me));
    HttpConnection upload(gateway->url());
    Headers headers = {{"Host", "localhost"},
                       {"Authorization", "Bearer " + gateway->key()},
                       {"Transfer-Encoding", "chunked"}};
    upload.send_request_head("PUT", me.file_url("file"), headers);
    for (int i = 0; i < 4; ++i) upload.send("40000\r\n" + part + "\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * round));
    ::kill(front_of(*gateway), SIGKILL);
    EXPECT_TRUE(works_within(10, me));
    EXPECT_EQ(me.content("file").substr(0, 20), "whole") << "round " << round;
  }
}

}  // namespace
}  // namespace isogate::test
