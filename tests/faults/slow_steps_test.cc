#include <filesystem>

#include "tests/faults/faults.h"
#include "tests_dirs.h"

// A step of a backend that takes any time: what waits for it, and what does not.
namespace isogate::test {
namespace {

class SlowSteps : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_UNLESS_STARTABLE();
    std::string yaml =
        "min_isolation: namespace\nsandbox_idle_timeout_sec: " + std::to_string(idle_sec_) + "\nbackends:\n";
    for (const auto* place : {&one_, &two_}) {
      std::filesystem::permissions(place->path(), std::filesystem::perms::all);
      place->file("fail", "");
      yaml +=
          std::string("  - name: ") + (place == &one_ ? "one" : "two") +
          "\n    plugin: " ISOGATE_BUILD_DIR "/test_plugins/staged.so\n    config: {stage: " + place->path() +
          "}\n";
    }
    gateway_ = start(yaml);
    ASSERT_TRUE(decided(*gateway_));
  }
  [[nodiscard]] Caller me() const { return {*gateway_, "me"}; }
  [[nodiscard]] Answer run(const std::string& agent, const std::string& backend,
                           Json more = Json::object()) const {
    more.update({{"argv", {"true"}}, {"backend", backend}});
    return Caller(*gateway_, agent).post("/exec", more);
  }
  static std::vector<std::string> places(const TemporaryDirectory& of) {
    std::vector<std::string> ids;
    for (const auto& entry : std::filesystem::directory_iterator(of.path()))
      if (entry.path().extension() == ".place") ids.push_back(entry.path().stem());
    return ids;
  }
  void expect_left_at_the_end(const std::string& step, double seconds) {
    ASSERT_EQ(run("me", "one").status, 200);
    ASSERT_EQ(run("me2", "two").status, 200);
    const std::vector<std::string> ids = places(one_);
    ASSERT_EQ(ids.size(), 1u);
    one_.file("fail", step);
    gateway_->signal(SIGTERM);
    EXPECT_EQ(gateway_->wait(seconds), 1);
    const std::string log = gateway_->log();
    const size_t line = log.find("\"sandboxes_left_open\"");
    ASSERT_NE(line, log.npos) << log;
    EXPECT_NE(log.substr(line, log.find('\n', line) - line).find(ids[0]), log.npos) << log;
    EXPECT_TRUE(places(two_).empty());
  }

  int idle_sec_ = 0;
  TemporaryDirectory one_, two_;
  std::unique_ptr<Gateway> gateway_;
};

class IdleSteps : public SlowSteps {
 protected:
  IdleSteps() { idle_sec_ = 1; }
};

TEST_F(IdleSteps, ABackendThatStopsSlowlyDelaysNoneOfAnother) {
  one_.file("fail", "slow-stop");
  for (const char* backend : {"one", "two"})
    for (int i = 0; i < 6; ++i) ASSERT_EQ(run(std::string(backend) + std::to_string(i), backend).status, 200);
  EXPECT_TRUE(eventually(20, [&] { return places(two_).empty(); }));
  EXPECT_EQ(places(one_).size(), 6u);
  EXPECT_EQ(run("six", "one").status, 200) << "stopping uses all workers of the host";
  one_.file("fail", "");
  EXPECT_TRUE(eventually(20, [&] { return places(one_).empty(); }));
}

TEST_F(SlowSteps, ARefusalAfterTheStartOfAStreamIsItsEnd) {
  ASSERT_EQ(run("me", "one").status, 200);
  one_.file("fail", "late-refusal");
  ExecStream stream(me(), {{"argv", {"true"}}, {"backend", "one"}});
  ASSERT_EQ(stream.status(), 200) << stream.head.body;
  const std::vector<Json> events = stream.rest();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events.front().at("event"), "start");
  EXPECT_EQ(events.back().at("event"), "exit");
  EXPECT_EQ(events.back().at("outcome"), "not_started");
  EXPECT_TRUE(events.back().at("exit_code").is_null());
  EXPECT_EQ(events.back().at("error").at("code"), "permission_denied");
  EXPECT_EQ(events.back().at("error").at("message"), "there is no such user");
  const Json line = logged(*gateway_, {"\"operation\":\"execStream\""});
  ASSERT_FALSE(line.is_null()) << gateway_->log();
  EXPECT_EQ(line.at("code"), "permission_denied");
}

TEST_F(SlowSteps, TheListingBeforeAnExecHasItsDeadline) {
  ASSERT_EQ(run("me", "one").status, 200);
  one_.file("fail", "slow-list");
  Answer answer;
  EXPECT_LT(seconds_of([&] { answer = run("me", "one", {{"artifact_dir", "out"}, {"timeout_sec", 1}}); }), 8);
  ASSERT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(answer.body.at("outcome"), "timed_out");
  EXPECT_EQ(answer.body.at("exit_code"), 124);
  EXPECT_EQ(answer.body.at("stdout"), "") << "it was started after its deadline";
  EXPECT_TRUE(eventually(5, [&] { return !std::filesystem::exists(one_.path() + "/listing"); }));
}

TEST_F(SlowSteps, TheListingBeforeAnExecEndsWithItsClient) {
  ASSERT_EQ(run("me", "one").status, 200);
  one_.file("fail", "slow-list");
  const std::string body =
      Json({{"argv", {"true"}}, {"agent_id", "me"}, {"artifact_dir", "out"}, {"timeout_sec", 300}}).dump();
  HttpConnection connection(gateway_->url());
  Headers headers = me().headers();
  headers.emplace_back("Content-Length", std::to_string(body.size()));
  connection.send_request_head("POST", "/exec", headers);
  connection.send(body);
  const auto lists = [&] { return std::filesystem::exists(one_.path() + "/listing"); };
  ASSERT_TRUE(eventually(5, lists));
  connection.close();
  EXPECT_TRUE(eventually(5, [&] { return !lists(); })) << "nobody waits for it any more";
}

TEST_F(SlowSteps, TheListingAfterAnExecHasABound) {
  std::filesystem::remove(one_.path() + "/ran");
  one_.file("fail", "slow-second-list");
  Answer answer;
  EXPECT_LT(seconds_of([&] {
              answer = run("me", "one", {{"artifact_dir", "out"}, {"timeout_sec", 1}});
            }),
            15);
  ASSERT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(answer.body.at("outcome"), "exited");
  EXPECT_NE(answer.body.value("reason", "").find("artifacts could not be listed"), std::string::npos)
      << answer.text;
}

TEST_F(SlowSteps, ASandboxThatCannotBeClosedAtTheEndIsNamedAndTheExitCodeSaysSo) {
  expect_left_at_the_end("stop", 30);
}

TEST_F(SlowSteps, ACloseThatHangsAtTheEndIsNamedAndTheExitCodeSaysSo) {
  expect_left_at_the_end("stuck-stop", 60);
}

}  // namespace
}  // namespace isogate::test
