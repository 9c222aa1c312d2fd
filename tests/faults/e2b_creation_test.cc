#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "tests/faults/faults.h"
#include "tests_dirs.h"

// The listener for E2B's SDKs, with a backend that is slow to make a sandbox, or fails at it.
namespace isogate::test {
namespace {

class E2bCreation : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_UNLESS_STARTABLE();
    std::filesystem::permissions(place_.path(), std::filesystem::perms::all);
    fail("");
    place_.file("home", "");
    gateway_ = start(
        "min_isolation: namespace\nkeys:\n  - {name: mine, tenant: mine, sha256: " + sha256_hex(key_) +
        "}\ne2b: {listen: [\"127.0.0.1:0\"]}\nbackends:\n  - name: staged\n    plugin: " ISOGATE_BUILD_DIR
        "/test_plugins/staged.so\n    config: {stage: " +
        place_.path() + "}\n");
    ASSERT_TRUE(decided(*gateway_));
    url_ = gateway_->e2b_url();
  }
  void fail(const std::string& steps) { place_.file("fail", steps); }
  [[nodiscard]] Answer create(int timeout) const {
    return answer_of(http_call(url_, "POST", "/sandboxes",
                               {{"X-API-Key", key_}, {"Content-Type", "application/json"}},
                               Json{{"timeout", timeout}}.dump()));
  }
  [[nodiscard]] Answer look_at_secret(const Json& box) const {
    const Headers headers = {{"E2b-Sandbox-Id", box.at("sandboxID")},
                             {"X-Access-Token", box.at("envdAccessToken")},
                             {"Content-Type", "application/json"}};
    return answer_of(
        http_call(url_, "POST", "/filesystem.Filesystem/Stat", headers, R"({"path":"/home/user/secret"})"));
  }
  [[nodiscard]] bool is_empty() const {
    for (const auto& entry : std::filesystem::directory_iterator(place_.path()))
      if (entry.path().extension() == ".place") return false;
    return true;
  }

  const std::string key_ = "e2b_" + sha256_hex("mine");
  TemporaryDirectory place_;
  std::unique_ptr<Gateway> gateway_;
  std::string url_;
};

TEST_F(E2bCreation, TheTimeoutBeginsWhenTheSandboxIsReady) {
  fail("slow-made");
  auto made = std::async(std::launch::async, [&] { return create(1); });
  ::usleep(4'000'000);
  fail("");
  const Answer answer = made.get();
  EXPECT_EQ(answer.status, 201) << answer.text;
  EXPECT_TRUE(eventually(30, [&] { return is_empty(); })) << "a second later it has ended";
}

TEST_F(E2bCreation, AFaultOfAFileCallHasNoPathInTheLog) {
  const Json box = create(300).body;
  fail("stat");
  const Answer answer = look_at_secret(box);
  EXPECT_EQ(answer.status, 500) << answer.text;
  EXPECT_NE(answer.text.find("/home/user/secret"), std::string::npos) << answer.text;
  const Json line = logged(*gateway_, {"\"event\":\"request\"", answer.header("X-Request-Id")});
  ASSERT_FALSE(line.is_null()) << gateway_->log();
  EXPECT_EQ(line.at("reason"), "`…` fails") << "no log has a path of a caller's";
}

TEST_F(E2bCreation, AFileCallWhoseBackendIsAwayHasNoPathInTheLog) {
  const Json box = create(300).body;
  fail("open");
  ASSERT_EQ(::kill(host_of(*gateway_, "staged"), SIGKILL), 0);
  ASSERT_TRUE(eventually(
      10, [&] { return gateway_->log().find("\"event\":\"backend_down\"") != std::string::npos; }));
  const Answer answer = look_at_secret(box);
  EXPECT_GE(answer.status, 500) << answer.text;
  ASSERT_FALSE(logged(*gateway_, {"\"event\":\"request\"", answer.header("X-Request-Id")}).is_null());
  EXPECT_EQ(gateway_->log().find("/home/user/secret"), std::string::npos) << gateway_->log();
}

TEST_F(E2bCreation, OneThatFailsIsEndedEvenIfTheEndFailsAtFirst) {
  fail("late-refusal purge");
  const Answer answer = create(300);
  EXPECT_GE(answer.status, 400);
  EXPECT_NE(answer.text.find("there is no such user"), std::string::npos) << answer.text;
  fail("");
  EXPECT_TRUE(eventually(60, [&] { return is_empty(); }));
}

}  // namespace
}  // namespace isogate::test
