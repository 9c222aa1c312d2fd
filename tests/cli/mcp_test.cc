// `isogate mcp --stdio` as a client of MCP starts it: lines in, lines out, and the gateway behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/text.h"
#include "tests/cli/fake_gateway.h"
#include "tests/eventually.h"
#include "tests/support/local_gateway.h"
#include "tests/support/processes.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

constexpr double kAnswerSec = 30;
constexpr const char* kRevision = "2026-07-28";

// Variables that MCP hosts do not pass on are not set.
ProgramOptions environment_of_clients(std::string err_file) {
  ProgramOptions options;
  options.env = {{"ISOGATE_URL", ""}, {"ISOGATE_KEY", ""}, {"ISOGATE_STATE_DIR", ""}};
  options.err_file = std::move(err_file);
  return options;
}

// The command, with a stdin that stays open.
class Shim {
 public:
  explicit Shim(std::vector<std::string> arguments) {
    const std::string fifo = directory_.path() + "/in";
    ::mkfifo(fifo.c_str(), 0600);
    std::vector<std::string> command = {"sh",  "-c",     "exec \"$@\" < " + fifo, "sh", isogate_binary(),
                                        "mcp", "--stdio"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    program_ = std::make_unique<Program>(command, environment_of_clients(directory_.path() + "/err"));
    EXPECT_TRUE(eventually(kAnswerSec, [&] {  // once the other end is open
      in_.reset(::open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
      return static_cast<bool>(in_);
    }));
    ::fcntl(in_.get(), F_SETFL, 0);
  }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(in_.get(), bytes.data(), bytes.size());
      ASSERT_GT(n, 0);
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  void ask(const Json& message) { send(message.dump() + "\n"); }

  // Each line so far, which must be JSON.
  std::vector<Json> lines() {
    program_->wait_for_output("what is never written", 0.001);
    std::vector<Json> all;
    std::istringstream out(program_->result.out.substr(0, program_->result.out.rfind('\n') + 1));
    for (std::string line; std::getline(out, line);) all.push_back(Json::parse(line));
    return all;
  }

  // A line that matches, once there is one.
  Json wait_for(const std::function<bool(const Json&)>& fits) {
    Json found;
    eventually(kAnswerSec, [&] {
      for (const Json& line : lines())
        if (fits(line)) found = line;
      return !found.is_null();
    });
    EXPECT_FALSE(found.is_null()) << program_->result.out << errors();
    return found;
  }
  Json answer_to(const Json& id) {
    return wait_for(
        [&](const Json& line) { return line.is_object() && line.contains("id") && line["id"] == id; });
  }
  Json call(const Json& message) {
    ask(message);
    return answer_to(message["id"]);
  }

  void close_stdin() { in_.reset(); }
  void signal(int number) { program_->signal(number); }
  // -1: it still runs.
  int exit_code() { return program_->wait(20) ? program_->result.exit_code : -1; }
  std::string out() { return program_->result.out; }
  std::string errors() { return read_whole(directory_.path() + "/err"); }

 private:
  TemporaryDirectory directory_;
  Fd in_;
  std::unique_ptr<Program> program_;
};

Json request_2025(const Json& id, const std::string& method, const Json& params = Json::object()) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", params}};
}

Json request_2026(const Json& id, const std::string& method, Json params = Json::object()) {
  params["_meta"]["io.modelcontextprotocol/protocolVersion"] = kRevision;
  params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = Json::object();
  return request_2025(id, method, params);
}

Json initialize(const Json& id) {
  return request_2025(id, "initialize",
                      {{"protocolVersion", "2025-11-25"},
                       {"capabilities", Json::object()},
                       {"clientInfo", {{"name", "test"}, {"version", "1"}}}});
}

Json ping(const Json& id) { return request_2025(id, "ping"); }

Json exec(const std::string& command) { return {{"name", "exec"}, {"arguments", {{"command", command}}}}; }

Json cancelled(const Json& id) {
  return {{"jsonrpc", "2.0"}, {"method", "notifications/cancelled"}, {"params", {{"requestId", id}}}};
}

std::string text_of(const Json& answer) {
  return answer.at("result").at("content").at(0).at("text").get<std::string>();
}

class McpOverStdio : public OnLocalGateway {
 protected:
  static void SetUpTestSuite() { start("limits: {max_json_bytes: 1048576}\n"); }

  static std::vector<std::string> at_gateway(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--url", gateway_->url(), "--state-dir", gateway_->state_dir()});
    return more;
  }
};

TEST_F(McpOverStdio, AClientOf2025IsServed) {
  Shim shim(at_gateway());
  Json agreed = shim.call(initialize(0));
  EXPECT_EQ(agreed["result"]["protocolVersion"], "2025-11-25") << agreed;
  shim.ask({{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}});
  Json listed = shim.call(request_2025("list", "tools/list"));
  EXPECT_FALSE(listed["result"]["tools"].empty());
  EXPECT_FALSE(listed["result"].contains("resultType"));
  Json done = shim.call(request_2025(2, "tools/call", exec("echo hi; exit 3")));
  EXPECT_EQ(done["result"]["structuredContent"]["stdout"], "hi\n") << done;
  EXPECT_EQ(done["result"]["structuredContent"]["exit_code"], 3);
  Json unknown = shim.call(request_2025(3, "no/such"));
  EXPECT_EQ(unknown["error"]["code"], -32601) << unknown;
  EXPECT_EQ(shim.lines().size(), 4u) << shim.out();
}

TEST_F(McpOverStdio, AClientOf2026IsServed) {
  Shim shim(at_gateway());
  Json found = shim.call(request_2026("server-discover-probe-0", "server/discover"));
  EXPECT_EQ(found["result"]["supportedVersions"][0], kRevision) << found;
  EXPECT_EQ(shim.call(request_2026(1, "tools/list"))["result"]["resultType"], "complete");
  Json done = shim.call(request_2026(2, "tools/call", exec("echo hi")));
  EXPECT_EQ(done["result"]["resultType"], "complete");
  EXPECT_EQ(done["result"]["structuredContent"]["stdout"], "hi\n") << done;
  EXPECT_EQ(shim.call(request_2026(3, "no/such"))["error"]["code"], -32601);
  Json other = request_2026(4, "tools/list");
  other["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "v999.0.0";
  EXPECT_EQ(shim.call(other)["error"]["code"], -32022);
}

TEST_F(McpOverStdio, ANameThatNoHeaderCanHoldReachesTheGateway) {
  Shim shim(at_gateway());
  int id = 0;
  for (const char* name : {"gr\xc3\xbc\xc3\x9f", " exec ", "a\r\nX-Evil: 1", "=?base64?ZXhlYw==?=", ""}) {
    Json answer = shim.call(request_2026(++id, "tools/call", {{"name", name}}));
    EXPECT_EQ(answer["error"]["code"], -32602) << answer;  // there is no such tool; the headers agree
  }
  EXPECT_EQ(shim.call(request_2026(++id, "a\r\nX-Evil: 1"))["error"]["code"], -32601);
}

TEST_F(McpOverStdio, CallsRunConcurrently) {
  Shim shim(at_gateway({"--agent", "beside"}));
  shim.ask(request_2025(1, "tools/call", exec("until [ -e go ]; do sleep 0.01; done; echo went")));
  shim.call(request_2026(2, "tools/call", exec("touch go")));
  EXPECT_EQ(shim.answer_to(1)["result"]["structuredContent"]["stdout"], "went\n");
}

TEST_F(McpOverStdio, ProgressComesBeforeTheAnswer) {
  Shim shim(at_gateway({"--agent", "progress"}));
  Json call = exec("echo up; until [ -e go ]; do sleep 0.01; done; echo down");
  call["_meta"]["progressToken"] = 0;
  shim.ask(request_2026(1, "tools/call", call));
  Json progress = shim.wait_for(
      [](const Json& line) { return line.contains("method") && line["method"] == "notifications/progress"; });
  EXPECT_EQ(progress["params"]["progressToken"], 0);
  EXPECT_EQ(progress["params"]["message"], "up\n");
  shim.call(request_2026(2, "tools/call", exec("touch go")));
  EXPECT_EQ(shim.answer_to(1)["result"]["structuredContent"]["stdout"], "up\ndown\n");
}

TEST_F(McpOverStdio, ACancelledCallIsKilledAndNotAnswered) {
  Shim shim(at_gateway());
  const std::string of_2025 = new_mark(), of_2026 = new_mark();
  shim.ask(request_2025(1, "tools/call", exec("sleep " + of_2025)));
  shim.ask(request_2026("1", "tools/call", exec("sleep " + of_2026)));
  ASSERT_TRUE(there_within(20, of_2025));
  ASSERT_TRUE(there_within(20, of_2026));
  shim.ask(cancelled(7));
  shim.ask(cancelled(1));
  EXPECT_TRUE(gone_within(20, of_2025));
  EXPECT_TRUE(there_within(1, of_2026)) << "\"1\" is another id";
  shim.ask(cancelled("1"));
  EXPECT_TRUE(gone_within(20, of_2026));
  shim.call(ping(2));
  EXPECT_EQ(shim.lines().size(), 1u) << shim.out();
  EXPECT_EQ(shim.errors(), "");
}

TEST_F(McpOverStdio, ItEndsWithStdinAndEndsWhatRuns) {
  Shim shim(at_gateway());
  const std::string mark = new_mark();
  shim.ask(request_2025(1, "tools/call", exec("sleep " + mark)));
  ASSERT_TRUE(there_within(20, mark));
  shim.close_stdin();
  EXPECT_EQ(shim.exit_code(), 0);
  EXPECT_TRUE(gone_within(20, mark));
  EXPECT_EQ(shim.out() + shim.errors(), "");
}

TEST_F(McpOverStdio, ItEndsWithSigtermAndEndsWhatRuns) {
  Shim shim(at_gateway());
  const std::string mark = new_mark();
  shim.ask(request_2025(1, "tools/call", exec("sleep " + mark)));
  ASSERT_TRUE(there_within(20, mark));
  shim.signal(SIGTERM);
  EXPECT_EQ(shim.exit_code(), 0);
  EXPECT_TRUE(gone_within(20, mark));
  EXPECT_EQ(shim.out() + shim.errors(), "");
}

TEST_F(McpOverStdio, BadLinesAreAnsweredAndTheNextOnesToo) {
  Shim shim(at_gateway());
  const auto refused = [](int code) {
    return [code](const Json& line) {
      return line.is_object() && line.contains("error") && line["error"]["code"] == code;
    };
  };
  shim.send("{\"jsonrpc\"\n");
  EXPECT_EQ(shim.wait_for(refused(-32700))["id"], nullptr);
  shim.send(std::string(11 << 20, '[') + "\n");
  EXPECT_EQ(shim.wait_for(refused(-32600))["id"], nullptr);
  shim.send("\n \r\n" + ping(1).dump() + "\r\n");
  EXPECT_EQ(shim.answer_to(1)["result"], Json::object());
  EXPECT_EQ(shim.lines().size(), 3u) << shim.out();
  shim.send("[1]\n");
  EXPECT_TRUE(eventually(kAnswerSec, [&] { return shim.lines().size() == 4; }));
  EXPECT_NE(shim.lines()[3].dump().find("-32600"), std::string::npos) << shim.out();
}

TEST_F(McpOverStdio, TheGatewaysErrorHasTheIdThatItCouldNotRead) {
  Shim shim(at_gateway());
  shim.send(R"({"jsonrpc":"2.0","id":"twice","method":"ping","method":"ping"})"
            "\n");
  EXPECT_EQ(shim.answer_to("twice")["error"]["code"], -32700);
}

TEST_F(McpOverStdio, TheAgentIsTheOneOfTheCommandLine) {
  Shim shim(at_gateway({"--agent", "alice"}));
  shim.call(request_2025(1, "tools/call", exec("echo mine > whose")));
  ProgramOptions options;
  options.env = gateway_->client_env();
  EXPECT_EQ(run_isogate({"read", "--agent", "alice", "whose"}, options).out, "mine\n");
  Json other = exec("echo no");
  other["arguments"]["agent_id"] = "bob";
  EXPECT_EQ(shim.call(request_2025(2, "tools/call", other))["result"]["isError"], true);
}

TEST_F(McpOverStdio, AWrongKeyIsNamedToThePersonAndTheModel) {
  TemporaryDirectory directory;
  const std::string file = directory.file("key", "wrong\n");
  Shim shim({"--url", gateway_->url(), "--key-file", file});
  Json refused = shim.call(initialize(0));
  const auto message = refused.at("error").at("message").get<std::string>();
  EXPECT_EQ(refused["error"]["code"], -32603);
  for (const std::string& part :
       {gateway_->url(), std::string("unauthenticated"), std::string("--key-file")}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(shim.errors().find(part), std::string::npos) << shim.errors();
  }
  Json failed = shim.call(request_2026(1, "tools/call", exec("true")));
  EXPECT_EQ(failed["result"]["isError"], true) << failed;
  EXPECT_EQ(failed["result"]["resultType"], "complete");
  EXPECT_EQ(text_of(failed), message);
}

TEST_F(McpOverStdio, AMessageThatIsTooLargeForTheGatewayIsAnError) {
  Shim shim(at_gateway());
  Json refused =
      shim.call(request_2025(1, "tools/call", {{"name", "exec"}, {"x", std::string(2 << 20, 'x')}}));
  EXPECT_EQ(refused["error"]["code"], -32600) << refused;
}

TEST(McpCommand, WithoutAGatewayItSaysSo) {
  const std::string url = "http://127.0.0.1:1";
  Shim shim({"--url", url});
  Json refused = shim.call(initialize(0));
  const auto message = refused.at("error").at("message").get<std::string>();
  EXPECT_EQ(message, "cannot reach the gateway at " + url +
                         ": Connection refused. Start one with `isogate serve`, or name it: --url or "
                         "ISOGATE_URL, or its state directory with --state-dir or ISOGATE_STATE_DIR.");
  Json failed = shim.call(request_2025("x", "tools/call", exec("true")));
  EXPECT_EQ(failed["result"]["isError"], true) << failed;
  EXPECT_FALSE(failed["result"].contains("resultType"));
  EXPECT_EQ(text_of(failed), message);
  shim.close_stdin();
  EXPECT_EQ(shim.exit_code(), 0);
}

TEST(McpCommand, ItDoesNotConnectBeforeTheFirstMessage) {
  FakeGateway gateway([](const std::string&) { return json_answer(500, ""); });
  Shim shim({"--url", gateway.url()});
  shim.ask({{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}});
  shim.ask(cancelled(1));
  shim.close_stdin();
  EXPECT_EQ(shim.exit_code(), 0);
  EXPECT_TRUE(gateway.requests().empty());
  EXPECT_EQ(shim.out() + shim.errors(), "");
}

TEST(McpCommand, ARequestGoesOutAsItCameWithItsHeaders) {
  FakeGateway gateway(
      [](const std::string&) { return json_answer(200, R"({"jsonrpc":"2.0","id":1,"result":{}})"); });
  Shim shim({"--url", gateway.url(), "--agent", "alice-1"});
  const std::string modern =
      R"({ "jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\u00fc","_meta":)"
      R"({"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}})";
  shim.send(modern + "\n");
  shim.answer_to(1);
  const std::string request = gateway.requests().at(0);
  for (const std::string& part :
       {std::string("POST /mcp/alice-1 HTTP/1.1\r\n"),
        std::string("\r\nMCP-Protocol-Version: 2026-07-28\r\n"),
        std::string("\r\nMcp-Method: tools/call\r\n"),
        "\r\nMcp-Name: =?base64?" + base64_encode("\xc3\xbc") + "?=\r\n",
        std::string("\r\nAccept: application/json, text/event-stream\r\n"), "\r\n\r\n" + modern})
    EXPECT_NE(request.find(part), std::string::npos) << part << "\n" << request;
  shim.ask(ping(2));
  ASSERT_TRUE(eventually(kAnswerSec, [&] { return gateway.requests().size() == 2; }));
  EXPECT_EQ(gateway.requests()[1].find("\r\nM"), std::string::npos) << gateway.requests()[1];
}

TEST(McpCommand, EventsBecomeLines) {
  FakeGateway gateway([](const std::string&) {
    return std::string("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n") +
           ": hello\n\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata:\"method\":\"m\"}\r\n\r\n" +
           "data: no JSON\n\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n: bye\n\n";
  });
  Shim shim({"--url", gateway.url()});
  shim.call(ping(1));
  EXPECT_EQ(shim.out(),
            "{\"jsonrpc\":\"2.0\", \"method\":\"m\"}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
  EXPECT_EQ(shim.errors(), "");
}

TEST(McpCommand, AnAnswerThatDoesNotComeIsAnError) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
  const std::pair<std::string, const char*> cases[] = {
      {head, "without an answer"},
      {head + "data: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n", "without an answer"},
      {head + "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"resu", "without an answer"},
      {"HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n", "without an answer"},
      {json_answer(200, "<html>"), "without an answer"},
      {json_answer(200, "{ }").substr(0, json_answer(200, "{ }").size() - 1), "broke off its answer"},
      {json_answer(502, "<html>"), "is this an isogate gateway?"},
      {refusal(429, "rate_limited", "too many"), "too many (rate_limited)"},
      {"", "broke"},
  };
  for (const auto& [answer, message] : cases) {
    FakeGateway gateway([&answer = answer](const std::string&) { return answer; });
    Shim shim({"--url", gateway.url()});
    Json failed = shim.call(ping(1));
    EXPECT_EQ(failed.at("error").at("code"), -32603) << failed;
    EXPECT_NE(failed["error"]["message"].get<std::string>().find(message), std::string::npos) << failed;
  }
}

TEST(McpCommand, CallsBeyondThoseThatRunAtOnceWaitForTheirTurn) {
  FakeGateway gateway([](const std::string& request) -> std::string {
    const Json id = body_of(request)["id"];
    if (id < 64) return "";
    return json_answer(200, Json{{"jsonrpc", "2.0"}, {"id", id}, {"result", Json::object()}}.dump());
  });
  gateway.hold = true;  // one at a time, which a cancelled call ends
  Shim shim({"--url", gateway.url()});
  for (int id = 0; id < 70; ++id) shim.ask(ping(id));
  shim.ask(cancelled(69));
  for (int id = 0; id < 64; ++id) shim.ask(cancelled(id));
  for (int id = 64; id < 69; ++id) EXPECT_TRUE(shim.answer_to(id).contains("result"));
  EXPECT_EQ(shim.lines().size(), 5u) << shim.out();
  shim.close_stdin();
  EXPECT_EQ(shim.exit_code(), 0);
}

TEST(McpCommand, AMissingKeyFileIsReportedToTheClient) {
  Shim shim({"--url", "http://127.0.0.1:1", "--key-file", "/nonexistent/key"});
  Json failed = shim.call(initialize(0));
  EXPECT_NE(failed.at("error").at("message").get<std::string>().find("/nonexistent/key"), std::string::npos);
}

TEST(McpCommand, WithoutStdioItIsNoCommand) {
  const auto done = run_isogate({"mcp"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_NE(done.err.find("--stdio"), std::string::npos) << done.err;
  EXPECT_EQ(done.out, "");
}

TEST(McpCommand, AnInvalidAgentIsRefusedAtTheStart) {
  Shim shim({"--agent", "a/b"});
  EXPECT_EQ(shim.exit_code(), 2);
  EXPECT_NE(shim.errors().find("--agent"), std::string::npos) << shim.errors();
}

}  // namespace
}  // namespace isogate::test
