#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <thread>

#include "lib/clock.h"
#include "tests/faults/faults.h"

// The machine's clock jumps by an hour, forward and back: limits in seconds are not affected. Only where the
// test may set the clock (tests/guest sets ISOGATE_TEST_OWN_CLOCK).
namespace isogate::test {
namespace {

constexpr time_t kHour = 3600;

void jump(time_t by) {
  timespec now{};
  ASSERT_EQ(::clock_gettime(CLOCK_REALTIME, &now), 0);
  now.tv_sec += by;
  ASSERT_EQ(::clock_settime(CLOCK_REALTIME, &now), 0);
}

class ClockJump : public testing::TestWithParam<time_t> {
 protected:
  void SetUp() override {
    if (std::getenv("ISOGATE_TEST_OWN_CLOCK") == nullptr)
      GTEST_SKIP() << "this test may not set the clock: tests/guest/run.py runs it where it may";
    gateway_ = start("sandbox_idle_timeout_sec: 600\nbackends: [{name: namespace}]\n");
    ASSERT_TRUE(decided(*gateway_));
    me().run("echo kept > kept; echo there > /tmp/there");
  }
  [[nodiscard]] Caller me() const { return {*gateway_, "me"}; }

  std::unique_ptr<Gateway> gateway_;
};

TEST_P(ClockJump, EndsNoExecBeforeItsTime) {
  ExecStream stream(me(), {{"command", "echo begun; sleep 4; echo done"}, {"timeout_sec", 300}}, 300);
  ASSERT_EQ(stream.status(), 200);
  std::vector<Json> events;
  while (data_of(events, "stdout").empty()) {
    auto event = stream.next();
    ASSERT_TRUE(event.has_value());
    events.push_back(std::move(*event));
  }
  jump(GetParam());
  for (Json& event : stream.rest()) events.push_back(std::move(event));
  EXPECT_EQ(data_of(events, "stdout"), "begun\ndone\n");
  EXPECT_EQ(events.back().value("outcome", ""), "exited") << events.back();
  EXPECT_LT(events.back().at("duration_ms").get<double>(), 300'000);
  EXPECT_GE(events.back().at("duration_ms").get<double>(), 3'900);
}

TEST_P(ClockJump, LetsATimeoutComeWhenItIsDue) {
  std::thread jumper([] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    jump(GetParam());
  });
  Json result;
  const double took = seconds_of([&] { result = me().run("sleep 1000", {{"timeout_sec", 5}}); });
  jumper.join();
  EXPECT_EQ(result.at("outcome"), "timed_out");
  EXPECT_GE(took, 4.9);
  EXPECT_LT(took, 60) << "an emulated machine is slow";
}

TEST_P(ClockJump, MakesNoSandboxIdleAndNoKeyStale) {
  jump(GetParam());
  std::this_thread::sleep_for(
      std::chrono::seconds(35));  // the longest interval between two checks for idle sandboxes
  EXPECT_EQ(gateway_->log().find("sandbox_stopped_idle"), std::string::npos) << gateway_->log();
  EXPECT_EQ(me().out("cat kept /tmp/there"), "kept\nthere\n");
  EXPECT_TRUE(succeeded(me().get("/sandboxes")));
  gateway_->stop();
}

// Its timeout is shorter than the jump.
TEST_P(ClockJump, EndsNoSandboxOfE2bAtARestart) {
  gateway_ = nullptr;
  const TemporaryDirectory state;
  const std::string key = "e2b_" + sha256_hex("mine");
  const std::string yaml = "keys:\n  - {name: mine, tenant: mine, sha256: " + sha256_hex(key) +
                           "}\ne2b: {listen: [\"127.0.0.1:0\"]}\nbackends: [{name: namespace}]\n";
  const Headers headers = {{"X-API-Key", key}, {"Content-Type", "application/json"}};
  gateway_ = start(yaml, state.path());
  ASSERT_TRUE(decided(*gateway_));
  const Answer made = answer_of(
      http_call(gateway_->e2b_url(), "POST", "/sandboxes", headers, Json{{"timeout", 1800}}.dump()));
  ASSERT_EQ(made.status, 201) << made.text;
  const std::string target = "/sandboxes/" + made.body.at("sandboxID").get<std::string>();
  const auto expect_half_an_hour = [&] {
    const Answer answer = answer_of(http_call(gateway_->e2b_url(), "GET", target, headers));
    ASSERT_EQ(answer.status, 200) << answer.text;
    const std::string end = answer.body.at("endAt");
    EXPECT_GT(end, utc_text_of_ms(wall_clock_ms() + 1'200'000));
    EXPECT_LT(end, utc_text_of_ms(wall_clock_ms() + 1'900'000));
  };
  jump(GetParam());
  expect_half_an_hour();
  std::this_thread::sleep_for(std::chrono::seconds(5));  // it looks every second
  gateway_ = nullptr;
  gateway_ = start(yaml, state.path());
  ASSERT_TRUE(decided(*gateway_));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  expect_half_an_hour();
}

std::string name_of(const testing::TestParamInfo<time_t>& jumped) {
  return jumped.param > 0 ? "AnHourOn" : "AnHourBack";
}

INSTANTIATE_TEST_SUITE_P(By, ClockJump, testing::Values(kHour, -kHour), name_of);

}  // namespace
}  // namespace isogate::test
