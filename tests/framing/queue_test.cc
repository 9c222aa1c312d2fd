// Waiting in the queue: not forever, and not behind a tenant that asks for all slots.
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

class Queue : public testing::Test {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  }
  static std::unique_ptr<Gateway> gateway_with(const std::string& limits, const std::string& more = {}) {
    return std::make_unique<Gateway>("allow_unisolated: true\nbackends: [{name: local}]\n" + more +
                                     "limits: {" + limits + "}\n" + keys_yaml("ab"));
  }
  static Caller caller(const Gateway& gateway, char tenant, const std::string& agent) {
    return {gateway.url(), tenant_key(tenant), agent};
  }
  static std::unique_ptr<ExecStream> occupy(const Caller& caller) {
    auto stream =
        std::make_unique<ExecStream>(caller, Json{{"command", "sleep 60"}, {"timeout_sec", 100}}, 100);
    EXPECT_EQ(stream->next().value_or(Json::object()).value("event", ""), "start");
    return stream;
  }

  static constexpr const char* kSmall =
      "max_execs: 2, exec_queue: 1, exec_queue_timeout_sec: 60, max_connections: 200";
  // A crowd of the tenant `a` calls again and again while all its places are taken.
  static void expect_slow_refusals(const Gateway& gateway, const std::string& url,
                                   const std::function<bool(HttpConnection&)>& is_refused,
                                   ExecStream& running) {
    std::atomic<bool> over = false;
    std::atomic<int> refused_calls = 0;
    std::vector<std::thread> crowd;
    for (int i = 0; i < 20; ++i) {
      crowd.emplace_back([&] {
        HttpConnection connection(url, 100);
        while (!over)
          if (is_refused(connection)) ++refused_calls;
      });
    }
    const double took = seconds_of([&] {
      ::usleep(2000000);
      EXPECT_EQ(caller(gateway, 'b', "me").out("echo mine"), "mine\n");
    });
    over = true;
    EXPECT_GT(refused_calls, 0);
    EXPECT_LE(refused_calls, 50 + 100 * took + 20) << "in " << took << " s";
    running.connection.close();
    for (std::thread& each : crowd) each.join();
  }
};

TEST_F(Queue, WhoWaitsTooLongIs429AndHasNotRun) {
  const auto gateway = gateway_with("max_execs: 1, exec_queue: 4, exec_queue_timeout_sec: 1");
  const auto running = occupy(caller(*gateway, 'a', "first"));
  const Caller me = caller(*gateway, 'b', "me");
  Answer answer;
  const double took = seconds_of([&] { answer = me.exec("touch ran"); });
  EXPECT_TRUE(refused(answer, 429, "rate_limited"));
  EXPECT_EQ(answer.header("Retry-After"), "5");
  EXPECT_NE(answer.text.find("exec_queue_timeout_sec"), std::string::npos) << answer.text;
  EXPECT_GE(took, 1.0);
  EXPECT_LT(took, 15);
  ExecStream stream(me, {{"command", "touch ran"}});
  EXPECT_EQ(stream.status(), 429);
  running->connection.close();
  EXPECT_EQ(me.out("ls"), "") << "it ran after it was refused";
}

TEST_F(Queue, ATenantWithManySandboxesLeavesPlacesForAnother) {
  const auto gateway = gateway_with("max_execs: 4, exec_queue: 4, exec_queue_timeout_sec: 60");
  std::vector<std::unique_ptr<ExecStream>> running;
  for (const char* agent : {"one", "two"}) running.push_back(occupy(caller(*gateway, 'a', agent)));
  std::vector<std::thread> waiting;
  for (const char* agent : {"three", "four"})
    waiting.emplace_back(
        [&gateway, agent] { EXPECT_EQ(caller(*gateway, 'a', agent).out("echo waited"), "waited\n"); });
  const Caller b = caller(*gateway, 'b', "six");
  EXPECT_TRUE(eventually(
      10, [&] { return b.get("/metrics").text.find("what=\"execs_waiting\"} 2") != std::string::npos; }));
  const Answer over = caller(*gateway, 'a', "five").exec("true");
  EXPECT_TRUE(refused(over, 429, "rate_limited"));
  EXPECT_NE(over.text.find("tenant_share_percent"), std::string::npos) << over.text;
  EXPECT_EQ(b.out("echo mine"), "mine\n");
  running.clear();
  for (std::thread& each : waiting) each.join();
}

// Otherwise a crowd of them keeps the front's one thread from the calls of others.
TEST_F(Queue, WhoIsRefusedAndCallsAgainAtOnceIsAnsweredMoreSlowly) {
  const auto gateway = gateway_with(kSmall);
  const auto running = occupy(caller(*gateway, 'a', "first"));
  expect_slow_refusals(
      *gateway, gateway->url(),
      [&](HttpConnection& connection) {
        const Headers headers = caller(*gateway, 'a', "first").headers();
        return connection.request("POST", "/exec", headers, R"({"command":"true"})").status == 429;
      },
      *running);
}

TEST_F(Queue, ARefusalInsideAnAnswerIsAsSlow) {
  const auto gateway = gateway_with(kSmall, kE2b);
  const Json box = e2b_box(*gateway);
  auto running = occupy(caller(*gateway, 'a', "first"));
  const std::string call =
      R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"command":"true"}}})";
  expect_slow_refusals(
      *gateway, gateway->url(),
      [&](HttpConnection& connection) {
        const Headers headers = caller(*gateway, 'a', "first").headers();
        return connection.request("POST", "/mcp/first", headers, call).body.find("\"isError\":true") !=
               std::string::npos;
      },
      *running);
  running = occupy(caller(*gateway, 'a', "first"));
  const std::string start = R"({"process":{"cmd":"true"}})";
  const std::string message = std::string(4, '\0') + static_cast<char>(start.size()) + start;
  expect_slow_refusals(
      *gateway, gateway->e2b_url(),
      [&](HttpConnection& connection) {
        const Headers headers = e2b_headers(box, "application/connect+json");
        const std::string body = connection.request("POST", "/process.Process/Start", headers, message).body;
        return body.find("resource_exhausted") != std::string::npos;
      },
      *running);
}

}  // namespace
}  // namespace isogate::test
