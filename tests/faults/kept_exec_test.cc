#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <future>
#include <sstream>
#include <thread>

#include "tests/faults/faults.h"
#include "tests_dirs.h"

// An exec that its backend keeps, while the gateway or the backend host is away.
namespace isogate::test {
namespace {

class KeptExec : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_UNLESS_STARTABLE();
    ::chmod(place_.path().c_str(), 0777);
    fail("");
    gateway_ = start("min_isolation: namespace\nbackends:\n  - name: staged\n    plugin: " ISOGATE_BUILD_DIR
                     "/test_plugins/staged.so\n    config: {runs: true, keeps: true, stage: " +
                     place_.path() + "}\n");
    ASSERT_TRUE(decided(*gateway_));
    const Answer started = me().post("/exec", {{"argv", {"any"}}, {"background", true}});
    ASSERT_EQ(started.status, 202) << started.text;
    const std::string id = started.body.at("exec_id");
    url_ = "/execs/" + id;
    ASSERT_TRUE(eventually(10, [&] { return me().get(url_).body.at("stdout").at("next_offset") == 10; }));
    ASSERT_TRUE(eventually(10, [&] { return gateway_->has_journaled(id); }));
  }
  void TearDown() override { place_.file("over", ""); }  // the stop would wait for it
  // At once: the plugin looks at it all the time.
  void fail(const std::string& steps) {
    std::filesystem::rename(place_.file("next", steps), place_.path() + "/fail");
  }
  [[nodiscard]] Caller me() const { return {*gateway_, "me"}; }
  // The next one serves afterwards, and its backend does not answer yet.
  void lose_front(const std::string& steps) {
    fail(steps);
    const pid_t front = front_of(*gateway_);
    ::kill(front, SIGKILL);
    ASSERT_TRUE(eventually(10, [&] { return front_of(*gateway_) > 0 && front_of(*gateway_) != front; }));
  }
  // A second later the backend does `steps` alone.
  [[nodiscard]] std::future<void> soon(const std::string& steps) {
    return std::async(std::launch::async, [this, steps] {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      fail(steps);
    });
  }
  // Repeated, as the client of a slow machine repeats it.
  [[nodiscard]] Answer output(const std::string& query) const {
    Answer answer;
    (void)eventually(30, [&] {
      answer = me().get(url_ + "/output" + query);
      return answer.status != 503;
    });
    return answer;
  }
  static std::string data_in(const Answer& answer) {
    std::string data;
    std::istringstream lines(answer.text);
    for (std::string line; std::getline(lines, line);)
      if (const Json event = Json::parse(line); event.at("event") == "stdout")
        data += bytes_of(event, "data");
    return data;
  }

  TemporaryDirectory place_;
  std::unique_ptr<Gateway> gateway_;
  std::string url_;
};

TEST_F(KeptExec, AReaderGoesOnAtItsOffsetAfterTheFrontDied) {
  lose_front("slow-rejoin slow-replay");
  const auto found = soon("slow-replay");
  auto early = std::async(std::launch::async, [this] { return output("?stdout_offset=3"); });
  EXPECT_EQ(me().get(url_).status, 200) << "found, and nothing of its output is there yet";
  fail("");
  const Answer answer = early.get();
  EXPECT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(data_in(answer), "3456789");
  place_.file("over", "");
  EXPECT_TRUE(refused(output("?stdout_offset=11"), 400, "invalid_request"));
}

TEST_F(KeptExec, AReaderWithoutAnOffsetBeginsWithWhatIsKept) {
  lose_front("slow-rejoin cut");
  const auto found = soon("cut");
  auto reader = std::async(std::launch::async, [this] { return output("?follow=true"); });
  EXPECT_TRUE(eventually(10, [&] { return me().get(url_).body.at("stdout").at("next_offset") == 10; }));
  place_.file("over", "");
  const Answer answer = reader.get();
  EXPECT_EQ(data_in(answer), "56789") << answer.text;
  EXPECT_NE(answer.text.find("\"event\":\"exit\""), std::string::npos) << answer.text;
}

TEST_F(KeptExec, WhatIsNotFoundInTimeCanBeAskedForLater) {
  lose_front("slow-rejoin");
  std::vector<std::future<Answer>> answers;
  for (const char* rest : {"/output", "/attach"})
    answers.push_back(std::async(std::launch::async, [this, rest] { return me().get(url_ + rest); }));
  for (auto& each : answers) {
    const Answer answer = each.get();
    EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
    EXPECT_FALSE(answer.header("Retry-After").empty());
  }
  EXPECT_EQ(me().get(url_).body.at("state"), "running") << "whoever waits for its end goes on";
  fail("");
  EXPECT_EQ(me().get(url_).body.at("state"), "running");
}

TEST_F(KeptExec, AKillIsAnsweredWhileTheBackendIsAwayAndDoneOnceItIsBack) {
  const auto quarantined = [this] {
    if (const pid_t host = host_of(*gateway_, "staged"); host > 0) ::kill(host, SIGKILL);
    return gateway_->log().find("backend_quarantined") != std::string::npos;
  };
  ASSERT_TRUE(eventually(60, quarantined)) << gateway_->log();
  EXPECT_TRUE(refused(me().call("DELETE", url_), 503, "backend_unavailable"));
  EXPECT_EQ(me().get(url_).body.at("state"), "running");
  gateway_->signal(SIGHUP);
  EXPECT_EQ(me().get(url_ + "?wait_sec=30").body.value("outcome", ""), "killed");
}

}  // namespace
}  // namespace isogate::test
