#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <future>
#include <map>
#include <regex>

#include "tests/faults/disk.h"
#include "tests/faults/faults.h"
#include "tests_dirs.h"

// As the gateway sees it, whatever its backend: after a failed step the next call is an error, or runs in
// what has been measured and accepted since.
namespace isogate::test {
namespace {

class SandboxSteps : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_UNLESS_STARTABLE();
    ::chmod(place_.path().c_str(), 0777);
    fail("");
    begin();
  }
  // On the state of the previous gateway, which has ended.
  void begin() { begin(gateways_.empty() ? "" : gateways_.back()->state_dir()); }
  void begin(const std::string& state_dir) {
    gateways_.push_back(
        start("min_isolation: namespace\nbackends:\n  - name: staged\n    plugin: " ISOGATE_BUILD_DIR
              "/test_plugins/staged.so\n    config: {stage: " +
                  place_.path() + "}\n",
              state_dir));
    ASSERT_TRUE(decided(gateway()));
  }
  Gateway& gateway() const { return *gateways_.back(); }
  void kill() { gateway().kill(); }
  void fail(const std::string& steps) { place_.file("fail", steps); }
  [[nodiscard]] Caller me() const { return {gateway(), "me"}; }
  [[nodiscard]] Answer run() const { return me().post("/exec", {{"argv", {"true"}}}); }
  [[nodiscard]] Answer end(bool purge) const {
    return me().call("DELETE", purge ? "/sandboxes/me?purge=true" : "/sandboxes/me");
  }
  static bool is_sound(const Answer& answer) {
    return answer.status == 200 && answer.body.value("stdout", "") == "sound\n" &&
           answer.body.value("isolation", "") == "namespace";
  }
  // Nothing ran unmeasured, and nothing was reported as if it had.
  static void expect_error_or_sound(const Answer& answer) {
    EXPECT_EQ(answer.text.find("UNSOUND"), std::string::npos) << answer.text;
    const bool ran = answer.body.contains("outcome");
    if (answer.status == 200)
      EXPECT_TRUE(ran ? is_sound(answer) : answer.body.value("content", "") == "sound\n") << answer.text;
    else
      EXPECT_GE(answer.status, 400) << answer.text;
  }
  size_t left(const std::string& suffix) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(place_.path()))
      if (entry.path().string().ends_with(suffix)) ++count;
    return count;
  }

  TemporaryDirectory place_;
  std::vector<std::unique_ptr<Gateway>> gateways_;
};

// The operator sees it, whatever the caller does with its answer.
TEST_F(SandboxSteps, AnOpenThatFailsIsLogged) {
  fail("open");
  const Answer answer = run();
  EXPECT_TRUE(refused(answer, 500, "internal"));
  std::smatch line;
  const std::string log = gateway().log();
  ASSERT_TRUE(std::regex_search(log, line, std::regex("[^\n]*\"event\":\"sandbox_not_opened\"[^\n]*")))
      << log;
  const Json fields = Json::parse(line.str());
  EXPECT_EQ(fields.at("level"), "warn");
  EXPECT_EQ(fields.at("request_id"), answer.header("X-Request-Id"));
  EXPECT_EQ(fields.at("tenant"), "local");
  EXPECT_EQ(fields.at("agent_id"), "me");
  EXPECT_EQ(fields.at("backend"), "staged");
  EXPECT_EQ(fields.at("code"), "internal");
  EXPECT_NE(fields.at("reason").get<std::string>().find("the step `open` fails"), std::string::npos)
      << fields;
}

TEST_F(SandboxSteps, WhatIsNotKnownOfAnExecsEndIsNullInTheLog) {
  ASSERT_TRUE(is_sound(run()));
  fail("weaker");
  EXPECT_TRUE(refused(run(), 502, "outcome_unknown"));
  EXPECT_TRUE(eventually(5, [&] {
    return gateway().log().find("\"outcome\":\"unknown\",\"exit_code\":null,\"ms\":null") !=
           std::string::npos;
  })) << gateway().log();
}

TEST_F(SandboxSteps, WhyAnExecsOutcomeIsUnknownIsInTheLogAsInItsAnswer) {
  ASSERT_TRUE(is_sound(run()));
  fail("weaker");
  const Answer answer = run();
  EXPECT_TRUE(refused(answer, 502, "outcome_unknown"));
  const std::string id = answer.header("X-Request-Id");
  const Json end = logged(gateway(), {"\"event\":\"exec_ended\"", id}),
             request = logged(gateway(), {"\"event\":\"request\"", id});
  ASSERT_TRUE(end.is_object() && request.is_object()) << gateway().log();
  EXPECT_EQ(end.at("reason"), "it ran with isolation none, less than its sandbox was opened with");
  EXPECT_EQ(answer.body.at("/error/details/reason"_json_pointer), end.at("reason"));
  EXPECT_EQ(request.at("reason"), answer.body.at("/error/message"_json_pointer));
  EXPECT_EQ(request.at("backend"), "staged");
  const Json before = logged(gateway(), {"\"event\":\"exec_ended\"", "\"outcome\":\"exited\""});
  ASSERT_TRUE(before.is_object());
  EXPECT_EQ(before.at("reason"), "");
}

TEST_F(SandboxSteps, AnEmptyWorkspaceInPlaceOfItsOwnIsLostUntilItIsDeleted) {
  ASSERT_TRUE(is_sound(run()));
  ASSERT_TRUE(succeeded(end(false)));
  for (const auto& entry : std::filesystem::directory_iterator(place_.path()))
    if (entry.path().extension() == ".workspace") std::filesystem::remove(entry.path());
  fail("forget");
  EXPECT_TRUE(refused(run(), 410, "sandbox_lost"));
  fail("");
  EXPECT_TRUE(refused(run(), 410, "sandbox_lost"));  // though its backend has that workspace now
  EXPECT_TRUE(succeeded(end(true)));
  EXPECT_TRUE(is_sound(run()));
}

TEST_F(SandboxSteps, APurgeThatEndsInNoSandboxHasSucceededOnceThereIsNone) {
  ASSERT_TRUE(is_sound(run()));
  fail("purge-gone");
  EXPECT_TRUE(succeeded(end(true)));
  EXPECT_EQ(left(".place") + left(".workspace"), 0u);
  EXPECT_TRUE(is_sound(run())) << "the agent begins again";
  EXPECT_TRUE(succeeded(end(true)));
  EXPECT_TRUE(refused(end(true), 404, "sandbox_not_found"));
}

TEST_F(SandboxSteps, APurgeThatEndsInNoSandboxIsNoSuccessWhileThereIsOne) {
  ASSERT_TRUE(is_sound(run()));
  fail("purge-denied");
  const Answer answer = end(true);
  EXPECT_TRUE(refused(answer, 500, "internal"));
  EXPECT_NE(answer.text.find("files of the sandbox may remain"), std::string::npos) << answer.text;
  EXPECT_EQ(left(".workspace"), 1u);
  EXPECT_EQ(left(".place"), 0u) << "it is stopped";
  EXPECT_TRUE(is_sound(run())) << "its agent can do nothing";
  fail("");
  EXPECT_TRUE(succeeded(end(true)));
  EXPECT_EQ(left(".place") + left(".workspace"), 0u);
}

TEST_F(SandboxSteps, AfterAnyThatFailsTheNextCallIsAnErrorOrSound) {
  const std::vector<std::pair<std::string, std::function<void()>>> acts = {
      {"run", [&] { (void)run(); }},
      {"stop", [&] { (void)end(false); }},
      {"purge", [&] { (void)end(true); }},
  };
  const std::vector<std::string> steps = {"open",
                                          "made",
                                          "evidence",
                                          "mismatch",
                                          "stop",
                                          "purge",
                                          "lost",
                                          "unproven",
                                          "weaker",
                                          "stop mismatch",
                                          "purge-gone",
                                          "purge-denied",
                                          "stop purge mismatch",
                                          "stop purge evidence"};
  for (const std::string& step : steps) {
    for (const bool opened_before : {false, true}) {
      for (const auto& [act, perform] : acts) {
        SCOPED_TRACE(step + (opened_before ? " while it is open, " : ", ") + act);
        fail("");
        ASSERT_TRUE(eventually(10, [&] { return end(true).status != 503; }));
        if (opened_before) {
          ASSERT_TRUE(eventually(10, [&] { return is_sound(run()); }));
        }
        fail(step);
        perform();
        expect_error_or_sound(run());
        expect_error_or_sound(me().read("a"));
        fail("");
        EXPECT_TRUE(eventually(10, [&] {
          const Answer answer = run();
          expect_error_or_sound(answer);
          return is_sound(answer) || answer.status == 410;
        })) << run().text;
        EXPECT_TRUE(succeeded(end(true)));
        EXPECT_EQ(left(".place"), 0u);
        EXPECT_EQ(left(".workspace"), 0u);
      }
    }
  }
}

TEST_F(SandboxSteps, AfterAHostThatEndsInAnyTheNextCallIsAnErrorOrSound) {
  const std::vector<std::pair<std::string, std::function<void()>>> acts = {
      {"die-made", [&] { (void)run(); }},
      {"die-evidence", [&] { (void)run(); }},
      {"die-stop", [&] { (void)end(false); }},
      {"die-purge", [&] { (void)end(true); }}};  // too few to quarantine it
  for (const auto& [step, perform] : acts) {
    SCOPED_TRACE(step);
    fail("");
    ASSERT_TRUE(eventually(10, [&] { return is_sound(run()); })) << run().text;
    if (step == "die-made" || step == "die-evidence") {
      ASSERT_TRUE(succeeded(end(false)));
    }
    fail(step);
    perform();
    fail("");
    EXPECT_TRUE(eventually(10, [&] {
      const Answer answer = run();
      expect_error_or_sound(answer);
      return is_sound(answer);
    })) << run().text;
  }
}

TEST_F(SandboxSteps, EvidenceThatMismatchedIsNotForgivenByTheNextOpen) {
  ASSERT_TRUE(is_sound(run()));
  ASSERT_TRUE(succeeded(end(false)));
  fail("mismatch stop");
  EXPECT_TRUE(refused(run(), 503, "backend_unavailable"));
  fail("mismatch");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(refused(run(), 503, "backend_unavailable"));
  fail("");
  EXPECT_TRUE(is_sound(run()));
}

TEST_F(SandboxSteps, AnExecThatIsNotProvenIsUnknownAndItsSandboxIsClosed) {
  ASSERT_TRUE(is_sound(run()));
  for (const char* how : {"unproven", "weaker"}) {
    fail(how);
    const Answer unknown = run();
    EXPECT_TRUE(refused(unknown, 502, "outcome_unknown")) << how;
    const Json isolation = unknown.body.at("/error/details/isolation"_json_pointer);
    EXPECT_EQ(isolation, std::string(how) == "weaker" ? Json("none") : Json())
        << "no more than what was proven";
    EXPECT_EQ(left(".place"), 1u);
    fail("stop");
    EXPECT_TRUE(refused(run(), 503, "backend_unavailable")) << how;
    fail("");
    EXPECT_TRUE(is_sound(run())) << how;
  }
}

TEST_F(SandboxSteps, AGatewayThatIsKilledBeforeTheCommitLeavesAnAgentThatWorks) {
  fail("die-evidence");  // the host leaves the same as when all processes are killed
  EXPECT_TRUE(refused(run(), 503, "backend_unavailable"));
  EXPECT_EQ(left(".place"), 1u);
  kill();
  fail("");
  begin();
  EXPECT_TRUE(eventually(10, [&] { return left(".place") == 0 && left(".workspace") == 0; }))
      << "what was never accepted is not ended";
  EXPECT_TRUE(is_sound(run()));
}

TEST_F(SandboxSteps, WhatABusyCleanUpComesToLateIsNotTheSandboxThatCameMeanwhile) {
  const std::vector<std::string> agents{"a", "b"};
  std::map<std::string, std::string> ids;
  fail("stuck-made stuck-list");
  std::vector<std::future<void>> calls;
  for (const auto& agent : agents) {
    const size_t before = ids.size();
    calls.push_back(std::async(std::launch::async, [this, agent] {
      try {
        (void)Caller(gateway(), agent).post("/exec", {{"argv", {"true"}}});
      } catch (const std::exception&) {  // its gateway is killed
      }
    }));
    EXPECT_TRUE(eventually(10, [&] {
      for (const auto& entry : std::filesystem::directory_iterator(place_.path()))
        if (const auto& path = entry.path(); path.extension() == ".workspace")
          ids.emplace(path.stem(), agent);
      return ids.size() > before;
    }));
  }
  ASSERT_EQ(ids.size(), 2u);
  kill();
  calls.clear();
  for (const auto& [id, agent] : ids) std::filesystem::remove(place_.path() + "/" + id + ".place");
  fail("stuck-list");
  begin();
  ASSERT_TRUE(eventually(10, [&] { return left(".place") == 1; })) << "nothing is cleaned up";
  for (const auto& [id, agent] : ids) {
    if (std::filesystem::exists(place_.path() + "/" + id + ".place")) continue;  // it works on this one
    const Caller other(gateway(), agent);
    EXPECT_TRUE(succeeded(other.call("DELETE", "/sandboxes/" + agent + "?purge=true")));
    EXPECT_TRUE(is_sound(other.post("/exec", {{"argv", {"true"}}})));
    fail("");
    EXPECT_TRUE(eventually(10, [&] { return left(".workspace") == 1; })) << "the first is not cleaned up";
    EXPECT_FALSE(eventually(1, [&] { return left(".place") == 0; })) << "it removed another sandbox";
    EXPECT_TRUE(is_sound(other.post("/exec", {{"argv", {"true"}}})));
    return;
  }
}

TEST_F(SandboxSteps, AfterALostStateStoreAnAgentWorksAndCanBeEnded) {
  ASSERT_TRUE(is_sound(run()));
  kill();
  const std::string state_dir = gateway().state_dir();
  const auto lose = [&] {
    for (const char* name : {"state.db", "state.db-wal", "state.db-shm"})
      std::filesystem::remove(state_dir + "/front/" + name);
  };
  lose();
  begin();
  EXPECT_TRUE(is_sound(run())) << run().text;
  kill();
  lose();
  begin();
  EXPECT_TRUE(succeeded(end(true)));
  EXPECT_EQ(left(".place") + left(".workspace"), 0u);
  EXPECT_TRUE(refused(end(true), 404, "sandbox_not_found"));
}

TEST_F(SandboxSteps, APurgeThatACrashInterruptsIsFinishedByTheNextGateway) {
  ASSERT_TRUE(is_sound(run()));
  fail("purge");
  EXPECT_GE(end(true).status, 500);
  kill();
  fail("");
  begin();
  EXPECT_TRUE(eventually(10, [&] { return left(".workspace") == 0; })) << "the purge is forgotten";
  EXPECT_TRUE(refused(end(true), 404, "sandbox_not_found"));
}

// The store of a front that cannot write: an opened sandbox is closed, and the agent works once the store can
// be written again.
TEST_F(SandboxSteps, ACommitThatFailsClosesWhatWasOpened) {
  Disk disk(16);
  if (!disk.usable()) GTEST_SKIP() << "no file system can be mounted here";
  const std::string state = disk.path() + "/state";
  begin(state);
  fail("slow-made");
  auto answer = std::async(std::launch::async, [this] { return run(); });
  ASSERT_TRUE(eventually(10, [this] { return left(".place") == 1; }));
  disk.make_read_only();
  fail("");
  EXPECT_TRUE(refused(answer.get(), 507, "quota_exceeded"));
  EXPECT_TRUE(eventually(10, [this] { return left(".place") == 0; }))
      << "a sandbox that could not be recorded is left open";
  gateway().signal(SIGTERM);
  EXPECT_NE(gateway().wait(45), -1);
  disk.repair();
  begin(state);
  EXPECT_TRUE(is_sound(run()));
  gateway().stop();
}

}  // namespace
}  // namespace isogate::test
