// Clients that send requests and do not read: bounded memory, a deadline, and all promises kept.
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

class SlowReader : public testing::Test {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
    gateway_ = std::make_unique<Gateway>(
        "allow_unisolated: true\nbackends: [{name: local}]\nlimits: {write_timeout_sec: 2}\n");
  }
  [[nodiscard]] Caller me() const { return {*gateway_, "a"}; }

  // Sends a request and does not read its answer.
  [[nodiscard]] std::unique_ptr<HttpConnection> ask(const std::string& path, const Json& body) const {
    auto connection = std::make_unique<HttpConnection>(gateway_->url(), 30);
    const int small = 4096;
    ::setsockopt(connection->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    Headers headers = me().headers();
    const std::string text = body.dump();
    headers.emplace_back("Content-Length", std::to_string(text.size()));
    connection->send_request_head("POST", path, headers);
    connection->send(text);
    return connection;
  }
  // By the file of a program that may have been ended since.
  [[nodiscard]] bool has_begun() const {
    return eventually(5, [this] { return me().read("begun").status == 200; });
  }
  [[nodiscard]] size_t running(const std::string& agent) const {
    const Answer answer = Caller(*gateway_, agent).get("/sandboxes");
    for (const Json& sandbox : answer.body.at("sandboxes"))
      if (sandbox.at("agent_id") == agent) return sandbox.at("running_execs");
    return 0;
  }
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(SlowReader, AnUnreadAnswerIsDroppedAtTheWriteDeadline) {
  const auto stalled = ask("/exec", {{"agent_id", "a"},
                                     {"command", "head -c 8000000 /dev/zero | tr '\\0' x"},
                                     {"max_output_bytes", 8000000}});
  EXPECT_TRUE(gateway_->logs("\"complete\":false", 15)) << gateway_->log();
  EXPECT_EQ(me().out("echo on"), "on\n");
}

TEST_F(SlowReader, AnUnreadDownloadIsDroppedAtTheWriteDeadline) {
  ASSERT_EQ(me().run("head -c 50000000 /dev/zero > big").at("exit_code"), 0);
  HttpConnection connection(gateway_->url(), 30);
  connection.send_request_head("GET", "/workspace/files/a/big", me().headers());
  EXPECT_TRUE(gateway_->logs("\"complete\":false", 15)) << gateway_->log();
}

TEST_F(SlowReader, AnUnreadStreamIsDroppedAndItsProgramKilled) {
  const std::string mark = new_mark();
  const auto stalled =
      ask("/exec-stream", {{"agent_id", "a"}, {"command", "touch begun; yes & sleep " + mark}});
  ASSERT_TRUE(has_begun());
  const pid_t front = front_of(*gateway_);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const long before = resident_kib(front);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(resident_kib(front) - before, kib_bound(1024)) << "it buffers what the client does not read";
  EXPECT_TRUE(gone_within(10, mark));
  EXPECT_TRUE(eventually(5, [&] { return running("a") == 0; }));
}

TEST_F(SlowReader, ATimeoutThatCameBeforeTheEndOfAnE2bSandboxIsReported) {
  const Gateway gateway("allow_unisolated: true\nbackends: [{name: local}]\n" + kE2b + keys_yaml("a"));
  const Json box = e2b_box(gateway);
  const Json args = Json::array({"-c", "head -c 16000000 /dev/zero; sleep 300"});
  const auto stream = e2b_start(gateway, box, {{"process", {{"cmd", "/bin/sh"}, {"args", args}}}},
                                {{"Connect-Timeout-Ms", "2000"}});
  ASSERT_TRUE(eventually(20, [&] { return e2b_processes(gateway, box).body.at("processes").empty(); }));
  const Headers key = {{"X-API-Key", tenant_key('a')}};
  const std::string sandbox = "/sandboxes/" + box.at("sandboxID").get<std::string>();
  ASSERT_EQ(http_call(gateway.e2b_url(), "DELETE", sandbox, key).status, 204);
  std::string tail;
  for (std::string part; !(part = stream->read_some()).empty();) {
    tail += part;
    tail.erase(0, tail.size() - std::min<size_t>(tail.size(), 1000));
  }
  EXPECT_NE(tail.find("its time was over"), std::string::npos) << tail;
}

TEST_F(SlowReader, TheTimeoutHoldsWhateverTheClientDoes) {
  gateway_ = nullptr;
  gateway_ = std::make_unique<Gateway>("allow_unisolated: true\nbackends: [{name: local}]\n");
  const std::string mark = new_mark();
  const auto stalled =
      ask("/exec-stream", {{"agent_id", "a"}, {"command", "yes & sleep " + mark}, {"timeout_sec", 10}});
  ASSERT_TRUE(there_within(5, mark));
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_TRUE(there_within(0.2, mark)) << "it ended before its time";
  EXPECT_TRUE(gone_within(15, mark)) << "it outlived its timeout";
}

TEST_F(SlowReader, AnEndedProgramTakesNoPlace) {
  gateway_ = nullptr;
  gateway_ = std::make_unique<Gateway>(
      "allow_unisolated: true\nbackends: [{name: local}]\nlimits: {max_execs: 1, exec_queue: 1}\n");
  const auto stalled =
      ask("/exec-stream",
          {{"agent_id", "a"}, {"command", "touch begun; yes & sleep " + new_mark()}, {"timeout_sec", 4}});
  ASSERT_TRUE(has_begun());
  const double took = seconds_of([&] { EXPECT_EQ(me().as("b").out("echo mine"), "mine\n"); });
  EXPECT_LT(took, 20.0);
}

TEST_F(SlowReader, AStalledStreamCanBeCancelled) {
  gateway_ = nullptr;
  gateway_ = std::make_unique<Gateway>("allow_unisolated: true\nbackends: [{name: local}]\n");
  const std::string closed = new_mark(), deleted = new_mark();
  auto one = ask("/exec-stream", {{"agent_id", "a"}, {"command", "yes & sleep " + closed}});
  const auto two = ask("/exec-stream", {{"agent_id", "b"}, {"command", "yes & sleep " + deleted}});
  ASSERT_TRUE(there_within(5, closed));
  ASSERT_TRUE(there_within(5, deleted));
  one->close();
  EXPECT_TRUE(gone_within(5, closed));
  std::thread end([&] { me().as("b").call("DELETE", "/sandboxes/b"); });
  EXPECT_TRUE(gone_within(5, deleted));
  gateway_->stop(60);
  end.join();
}

// A Unix socket takes a fixed amount: with that many unread responses, the stream's head must wait, and after
// 15 s of that a ping is due.
TEST_F(SlowReader, NoPingOvertakesTheStartOfItsStream) {
  if (!slow_tests()) GTEST_SKIP() << "takes 18 s: set ISOGATE_SLOW_TESTS=1";
  gateway_ = nullptr;
  gateway_ = std::make_unique<Gateway>("allow_unisolated: true\nbackends: [{name: local}]\n");
  const auto many = [](size_t count) {
    std::string requests;
    while (count-- > 0) requests += "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    return requests;
  };
  const auto answered = [&] {
    const std::string log = gateway_->log();
    size_t count = 0;
    for (size_t at = 0; (at = log.find("\"peer\":\"uid", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  const size_t before = answered();
  HttpConnection measure(gateway_->unix_url(), 60);
  measure.send(many(1000));
  size_t room = 0;
  ASSERT_TRUE(eventually(10, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    return room == std::exchange(room, answered() - before) && room > 0;
  }));
  ASSERT_LT(room, 1000u);

  HttpConnection connection(gateway_->unix_url(), 60);
  connection.send(many(room));
  const std::string body = R"({"agent_id":"a","command":"echo hi"})";
  connection.send_request_head(
      "POST", "/exec-stream",
      {{"Content-Type", "application/json"}, {"Content-Length", std::to_string(body.size())}});
  connection.send(body);
  std::this_thread::sleep_for(std::chrono::milliseconds(16500));
  for (size_t i = 0; i < room; ++i) ASSERT_EQ(connection.read_response().status, 200) << i;
  ASSERT_EQ(connection.read_head("POST").status, 200);
  EXPECT_EQ(Json::parse(connection.read_line()).at("event"), "start");
  std::string last;
  for (std::string line; !(line = connection.read_line()).empty();) last = line;
  EXPECT_EQ(Json::parse(last).value("outcome", ""), "exited") << last;
}

// The reader decides the speed; not a byte is lost.
TEST_F(SlowReader, ASlowReaderSlowsTheProgram) {
  const Json request{{"agent_id", "a"}, {"command", "head -c 3000000 /dev/zero | tr '\\0' x; echo done >&2"}};
  ExecStream stream(me(), request, 60);
  size_t bytes = 0;
  std::string outcome;
  while (const auto event = stream.next()) {
    if (event->at("event") == "stdout") bytes += event->at("data").get_ref<const std::string&>().size();
    if (event->at("event") == "exit") outcome = event->at("outcome");
    if (bytes < 1000000) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(bytes, 3000000u);
  EXPECT_EQ(outcome, "exited");
}

}  // namespace
}  // namespace isogate::test
