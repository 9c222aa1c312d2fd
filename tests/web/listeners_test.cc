#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <regex>
#include <thread>

#include "tests/support/api.h"
#include "tests/support/processes.h"
#include "tests/support/websocket.h"

// What browsers, scrapers and guessers get from the listeners.
namespace isogate::test {
namespace {

class WebListeners : public testing::Test {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  }
  static std::unique_ptr<Gateway> start(const std::string& more) {
    return std::make_unique<Gateway>("allow_unisolated: true\nbackends: [{name: local}]\n" + more);
  }
  static Answer ask(const Gateway& gateway, const std::string& method, const std::string& path,
                    const Headers& headers = {}, const std::string& body = {}) {
    return answer_of(http_call(gateway.url(), method, path, headers, body));
  }
  static Headers preflight(const std::string& origin) {
    return {{"Origin", origin},
            {"Access-Control-Request-Method", "POST"},
            {"Access-Control-Request-Headers", "authorization,content-type"}};
  }
};

const char* const kPermissions[] = {"Access-Control-Allow-Origin", "Access-Control-Allow-Methods",
                                    "Access-Control-Allow-Headers", "Access-Control-Allow-Credentials"};

TEST_F(WebListeners, APreflightOfAListedOriginIsPermitted) {
  const auto gateway = start("cors: {origins: ['https://console.example.org', 'http://localhost:3000']}\n");
  for (const char* origin : {"https://console.example.org", "http://localhost:3000"}) {
    const Answer answer = ask(*gateway, "OPTIONS", "/exec", preflight(origin));
    EXPECT_EQ(answer.status, 204) << answer.text;
    EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), origin);
    EXPECT_NE(answer.header("Access-Control-Allow-Methods").find("POST"), std::string::npos);
    for (const char* header :
         {"Authorization", "Content-Type", "If-Range", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"})
      EXPECT_NE(answer.header("Access-Control-Allow-Headers").find(header), std::string::npos) << header;
    EXPECT_EQ(answer.header("Access-Control-Allow-Credentials"), "") << "keys are no ambient credentials";
    EXPECT_NE(answer.header("Access-Control-Max-Age"), "");
    EXPECT_EQ(answer.header("Vary"), "Origin");
    EXPECT_EQ(answer.header("Content-Length"), "");
  }
  const Answer refusal = ask(*gateway, "GET", "/backends", {{"Origin", "http://localhost:3000"}});
  EXPECT_TRUE(refused(refusal, 401, "unauthenticated"));
  EXPECT_EQ(refusal.header("Access-Control-Allow-Origin"), "http://localhost:3000")
      << "the page may read the reason";
}

TEST_F(WebListeners, APreflightOfAnyOtherGetsNoPermission) {
  const auto gateway = start("cors: {origins: ['https://console.example.org']}\n");
  for (const char* origin : {"https://evil.example", "null", "https://console.example.org.evil.example",
                             "http://console.example.org", "https://console.example.org:444", "*", ""}) {
    const Answer answer = ask(*gateway, "OPTIONS", "/exec", preflight(origin));
    EXPECT_GE(answer.status, 400) << origin;
    for (const char* permission : kPermissions) EXPECT_EQ(answer.header(permission), "") << origin;
    const Answer other = ask(*gateway, "GET", "/livez", {{"Origin", origin}});
    EXPECT_EQ(other.status, 200);
    for (const char* permission : kPermissions) EXPECT_EQ(other.header(permission), "") << origin;
  }
  EXPECT_TRUE(refused(ask(*gateway, "OPTIONS", "/exec"), 405, "method_not_allowed"));
}

TEST_F(WebListeners, APermissionIsForOneRequestOfAConnection) {
  const auto gateway = start("cors: {origins: ['https://console.example.org']}\n");
  HttpConnection connection(gateway->url());
  EXPECT_EQ(connection.request("GET", "/livez", {{"Origin", "https://console.example.org"}})
                .header("Access-Control-Allow-Origin"),
            "https://console.example.org");
  EXPECT_EQ(connection.request("GET", "/livez").header("Access-Control-Allow-Origin"), "");
}

TEST_F(WebListeners, EveryAnswerHasTheHeadersForBrowsers) {
  const auto gateway = start("");
  const Caller me(*gateway, "a");
  me.write("f", "x");
  HttpConnection broken(gateway->url());
  broken.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
  for (const Answer& answer : {me.get("/livez"), me.get("/backends"), me.exec("true"),
                               me.exec("true", {{"nonsense", 1}}), me.get("/nowhere"), me.get("/exec"),
                               me.call("GET", me.file_url("f")), me.call("DELETE", me.file_url("f")),
                               ask(*gateway, "GET", "/backends"), answer_of(broken.read_response())}) {
    EXPECT_EQ(answer.header("X-Content-Type-Options"), "nosniff") << answer.text;
    EXPECT_EQ(answer.header("X-Frame-Options"), "DENY") << answer.text;
    EXPECT_EQ(answer.header("Referrer-Policy"), "no-referrer") << answer.text;
    EXPECT_EQ(answer.header("Cross-Origin-Resource-Policy"), "same-origin") << answer.text;
    EXPECT_EQ(answer.header("Cache-Control"), "no-store") << answer.text;
    EXPECT_NE(answer.header("Content-Security-Policy").find("sandbox"), std::string::npos) << answer.text;
    EXPECT_EQ(answer.header("Server"), "") << answer.text;
  }
}

TEST_F(WebListeners, AnonymousCallersNeedAHostOfThisMachine) {
  const auto gateway =
      start("anonymous: loopback\nhosts: [dev.example]\ncors: {origins: ['http://localhost:3000']}\n");
  const std::string port = ":" + gateway->port();
  for (const std::string& host : {"localhost" + port, std::string("localhost"), "127.0.0.1" + port,
                                  "dev.example" + port, "LOCALHOST" + port})
    EXPECT_EQ(ask(*gateway, "GET", "/backends", {{"Host", host}}).status, 200) << host;
  for (const std::string& host : {"evil.example" + port, "localhost.evil.example" + port,
                                  std::string("localhost:1"), "0.0.0.0" + port, "dev.example.evil" + port})
    EXPECT_TRUE(refused(ask(*gateway, "GET", "/backends", {{"Host", host}}), 421, "misdirected_request"))
        << host;
  const Headers no_host = {{"Host", "evil.example/localhost" + port}};
  EXPECT_TRUE(refused(ask(*gateway, "GET", "/backends", no_host), 400, "invalid_request"));
  const std::string here = "127.0.0.1" + port;
  for (const char* origin : {"https://evil.example", "null", "http://localhost:3001"})
    EXPECT_TRUE(refused(ask(*gateway, "GET", "/backends", {{"Host", here}, {"Origin", origin}}), 403,
                        "permission_denied"))
        << origin;
  EXPECT_EQ(ask(*gateway, "GET", "/backends", {{"Host", here}, {"Origin", "http://localhost:3000"}}).status,
            200);
  EXPECT_EQ(ask(*gateway, "GET", "/backends", {{"Host", here}, {"Sec-Fetch-Site", "cross-site"}}).status,
            403);
}

// A browser lets any page open a WebSocket, and says whose it is.
TEST_F(WebListeners, AnotherPageOpensNoWebSocket) {
  const auto gateway = start("anonymous: loopback\ncors: {origins: ['http://localhost:3000']}\n");
  const Caller me(*gateway, "a");
  const Answer started = me.exec("cat", {{"background", true}, {"stdin_open", true}});
  ASSERT_EQ(started.status, 202) << started.text;
  const std::string path = "/execs/" + started.body.at("exec_id").get<std::string>();
  for (const Headers& headers : {Headers{{"Origin", "https://evil.example"}}, Headers{{"Origin", "null"}},
                                 Headers{{"Sec-Fetch-Site", "cross-site"}}}) {
    const WebSocket socket(gateway->url(), path + "/attach", headers);
    EXPECT_TRUE(refused(answer_of(socket.answer()), 403, "permission_denied"));
  }
  EXPECT_TRUE(WebSocket(gateway->url(), path + "/attach", {{"Origin", "http://localhost:3000"}}).open());
  EXPECT_TRUE(succeeded(me.call("DELETE", path)));
}

bool got(const Caller& caller, const std::string& text) {
  const Answer answer = caller.read("got");
  return answer.status == 200 && answer.body.at("content").get<std::string>() == text;
}

// A WebSocket that stays open needs no other request to command a program.
TEST_F(WebListeners, ARemovedKeyCommandsNothingMore) {
  const std::string local = "allow_unisolated: true\nbackends: [{name: local}]\n";
  const auto gateway = std::make_unique<Gateway>(local + keys_yaml("abc"));
  struct Client {
    Caller caller;
    std::string path;
    std::unique_ptr<WebSocket> socket;
  };
  std::vector<Client> clients;
  for (const char tenant : {'a', 'b'}) {
    const Caller caller(gateway->url(), tenant_key(tenant), std::string(1, tenant));
    const Answer started =
        caller.exec("read line; echo $line >got; cat", {{"background", true}, {"stdin_open", true}});
    ASSERT_EQ(started.status, 202) << started.text;
    const std::string path = "/execs/" + started.body.at("exec_id").get<std::string>();
    clients.push_back(
        {caller, path, std::make_unique<WebSocket>(gateway->url(), path + "/attach", caller.headers(), 30)});
    ASSERT_TRUE(clients.back().socket->open());
  }
  gateway->reload(local + keys_yaml("ac"));
  ASSERT_TRUE(gateway->logs("no_longer_admitted"));
  WebSocket& removed = *clients[1].socket;
  while (removed.next()) {
  }
  EXPECT_EQ(removed.close_code(), 1008);
  clients[0].socket->send_binary("still here\n");
  EXPECT_TRUE(eventually(20, [&] { return got(clients[0].caller, "still here\n"); }));
  gateway->reload(local + keys_yaml("abc"));
  EXPECT_EQ(clients[1].caller.read("got").status, 404);
  for (const Client& one : clients) EXPECT_TRUE(succeeded(one.caller.call("DELETE", one.path)));
}

// Requests whose body goes on as stdin.
TEST_F(WebListeners, ARemovedKeySendsNoMoreStdin) {
  const std::string local = "allow_unisolated: true\nbackends: [{name: local}]\n";
  const auto gateway = std::make_unique<Gateway>(local + keys_yaml("abc"));
  const Caller caller(gateway->url(), tenant_key('b'), "b");
  const Answer started = caller.exec("cat >got", {{"background", true}, {"stdin_open", true}});
  ASSERT_EQ(started.status, 202) << started.text;
  const std::string path = "/execs/" + started.body.at("exec_id").get<std::string>();
  HttpConnection connection(gateway->url(), 30);
  Headers headers = caller.headers();
  headers.emplace_back("Content-Length", "100");
  connection.send_request_head("POST", path + "/stdin", headers);
  connection.send("before\n");
  EXPECT_TRUE(eventually(20, [&] { return got(caller, "before\n"); }));
  gateway->reload(local + keys_yaml("ac"));
  ASSERT_TRUE(gateway->logs("no_longer_admitted"));
  try {
    connection.send("after\n");
  } catch (const std::runtime_error&) {  // it is closed already
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  gateway->reload(local + keys_yaml("abc"));
  EXPECT_TRUE(got(caller, "before\n"));
  EXPECT_TRUE(succeeded(caller.call("DELETE", path)));
}

// Whatever still comes of it.
bool ends_within(const HttpConnection& connection, double seconds) {
  return eventually(seconds, [&] {
    char bytes[4096];
    const ssize_t n = ::recv(connection.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  });
}

// The head of a request whose key is checked when this returns, since 100 was sent.
std::unique_ptr<HttpConnection> begin_request(const Caller& caller, const std::string& method,
                                              const std::string& target, size_t length) {
  auto connection = std::make_unique<HttpConnection>(caller.url(), 30);
  Headers headers = caller.headers();
  headers.emplace_back("Content-Length", std::to_string(length));
  headers.emplace_back("Expect", "100-continue");
  connection->send_request_head(method, target, headers);
  const std::string expected = "HTTP/1.1 100 Continue\r\n\r\n";
  std::string got(expected.size(), '\0');
  const ssize_t n = ::recv(connection->fd(), got.data(), got.size(), MSG_WAITALL);
  EXPECT_EQ(n, static_cast<ssize_t>(expected.size()));
  EXPECT_EQ(got, expected);
  return connection;
}

// A body that comes slowly is no way to keep a key.
TEST_F(WebListeners, ARemovedKeyStartsNothingMore) {
  const std::string local = "allow_unisolated: true\nbackends: [{name: local}]\n";
  const auto gateway = std::make_unique<Gateway>(local + keys_yaml("abc"));
  const Caller caller(gateway->url(), tenant_key('b'), "b");
  const std::string exec = R"({"agent_id":"b","command":"touch got"})", file = "text";
  const auto first = begin_request(caller, "POST", "/exec", exec.size());
  const auto second = begin_request(caller, "PUT", caller.file_url("got"), file.size());
  first->send(exec.substr(0, exec.size() - 1));
  second->send(file.substr(0, file.size() - 1));
  gateway->reload(local + keys_yaml("ac"));
  ASSERT_TRUE(gateway->logs("no_longer_admitted"));
  for (const auto& [connection, rest] : {std::pair(first.get(), exec.substr(exec.size() - 1)),
                                         std::pair(second.get(), file.substr(file.size() - 1))}) {
    try {
      connection->send(rest);
    } catch (const std::runtime_error&) {  // it is closed already
    }
    EXPECT_TRUE(ends_within(*connection, 20));
  }
  gateway->reload(local + keys_yaml("abc"));
  EXPECT_EQ(caller.read("got").status, 404);
}

// Two keys of one tenant, of which a reload removes one.
class RotatedKeys : public testing::Test {
 protected:
  static std::string yaml(bool with_old) {
    const auto key = [](const std::string& name, char whose) {
      return "  - {name: " + name + ", tenant: b, sha256: " + sha256_hex(tenant_key(whose)) + "}\n";
    };
    return "allow_unisolated: true\nbackends: [{name: local}]\nkeys:\n" + (with_old ? key("old", 'b') : "") +
           key("new", 'c');
  }
  const std::unique_ptr<Gateway> gateway_ = std::make_unique<Gateway>(yaml(true));
  const Caller old_{gateway_->url(), tenant_key('b'), "b"}, next_{gateway_->url(), tenant_key('c'), "b"};
};

// They are answered one after another.
TEST_F(RotatedKeys, ABatchOfARemovedOneBeginsNoFurtherCall) {
  const auto call = [](int id, const std::string& tool, const Json& arguments) {
    return Json{{"jsonrpc", "2.0"},
                {"id", id},
                {"method", "tools/call"},
                {"params", {{"name", tool}, {"arguments", arguments}}}};
  };
  const Json batch = {
      call(1, "exec", {{"command", "touch begun; until [ -e go ]; do sleep 0.05; done; echo over"}}),
      call(2, "exec", {{"command", "touch got"}}),
      call(3, "write_file", {{"path", "got"}, {"content", "x"}})};
  const std::string body = batch.dump();
  const Headers headers = {{"Authorization", "Bearer " + tenant_key('b')},
                           {"Content-Type", "application/json"},
                           {"Accept", "application/json, text/event-stream"},
                           {"MCP-Protocol-Version", "2025-03-26"},
                           {"Content-Length", std::to_string(body.size())}};
  HttpConnection connection(gateway_->url(), 60);
  connection.send_request_head("POST", "/mcp/b", headers);
  connection.send(body);
  ASSERT_TRUE(eventually(20, [&] { return next_.read("begun").status == 200; }));
  gateway_->reload(yaml(false));
  ASSERT_TRUE(gateway_->logs("no_longer_admitted"));
  ASSERT_TRUE(succeeded(next_.write("go", "")));
  const HttpResponse answer = connection.read_response();
  EXPECT_NE(answer.body.find("over"), std::string::npos) << "what ran has ended: " << answer.body;
  EXPECT_NE(answer.body.find("no longer accepted"), std::string::npos) << answer.body;
  EXPECT_EQ(next_.read("got").status, 404);
}

// Each member is a read of its own.
TEST_F(RotatedKeys, AnArchiveOfARemovedOneIsCutBeforeItsNextMember) {
  constexpr size_t kSize = 20'000'000;
  ASSERT_TRUE(succeeded(next_.exec("mkdir d && for i in 1 2 3; do head -c " + std::to_string(kSize) +
                                   " /dev/zero > d/$i; done")));
  HttpConnection connection(gateway_->url(), 60);
  const int little = 65536;  // so that most of it waits for its reader
  ASSERT_EQ(::setsockopt(connection.fd(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
  connection.send_request_head("GET", "/workspace/archive?agent_id=b&path=d", old_.headers());
  ASSERT_EQ(connection.read_head().status, 200);
  gateway_->reload(yaml(false));
  ASSERT_TRUE(gateway_->logs("no_longer_admitted"));
  size_t got = 0;
  EXPECT_THROW(
      {
        for (std::string some; !(some = connection.read_some()).empty();) got += some.size();
      },
      std::runtime_error);
  EXPECT_LT(got, 2 * kSize);
  EXPECT_TRUE(gateway_->logs("\"complete\":false,\"code\":\"unauthenticated\"")) << gateway_->log();
}

// What a program does not read yet waits, and must not keep others from its stdin.
TEST_F(RotatedKeys, ARemovedOneLeavesStdinToTheNext) {
  const auto& gateway = gateway_;
  const Caller &old = old_, &next = next_;
  for (const bool attached : {false, true}) {
    const Answer started = next.exec("sleep 1000", {{"background", true}, {"stdin_open", true}});
    ASSERT_EQ(started.status, 202) << started.text;
    const std::string path = "/execs/" + started.body.at("exec_id").get<std::string>();
    const auto attach = [&](const Caller& caller) {
      return std::make_unique<WebSocket>(gateway->url(), path + "/attach", caller.headers(), 30);
    };
    std::unique_ptr<HttpConnection> request;
    std::unique_ptr<WebSocket> socket;
    if (attached) {
      socket = attach(old);
      ASSERT_TRUE(socket->open());
      for (int i = 0; i < 3; ++i) socket->send_binary(std::string(100'000, 'x'));
    } else {
      request = begin_request(old, "POST", path + "/stdin", 1'000'000);
      request->send(std::string(300'000, 'x'));
    }
    EXPECT_EQ(attach(next)->answer().status, 409);
    gateway->reload(yaml(false));
    EXPECT_TRUE(eventually(20, [&] { return attach(next)->open(); }));
    if (request) {
      EXPECT_TRUE(ends_within(*request, 20));
    }
    EXPECT_TRUE(succeeded(next.call("DELETE", path)));
    gateway->reload(yaml(true));
  }
}

// Responses without an end. That they end is no guess at a key by their peer, who may be a proxy of many.
TEST_F(WebListeners, ARemovedKeyReadsNothingMore) {
  const std::string local = "allow_unisolated: true\nbackends: [{name: local}]\n";
  const auto gateway = std::make_unique<Gateway>(local + keys_yaml("abc"));
  const Caller caller(gateway->url(), tenant_key('b'), "b");
  const Answer started = caller.exec("sleep 1000", {{"background", true}});
  ASSERT_EQ(started.status, 202) << started.text;
  const std::string path = "/execs/" + started.body.at("exec_id").get<std::string>();
  std::vector<std::unique_ptr<HttpConnection>> open;
  const auto begin = [&](const std::string& method, const std::string& target, const std::string& body) {
    open.push_back(std::make_unique<HttpConnection>(gateway->url(), 30));
    Headers headers = caller.headers();
    if (!body.empty()) headers.emplace_back("Content-Length", std::to_string(body.size()));
    open.back()->send_request_head(method, target, headers);
    open.back()->send(body);
    EXPECT_EQ(open.back()->read_head(method).status, 200) << target;
  };
  begin("GET", "/workspace/watch?agent_id=b", "");
  begin("POST", "/exec-stream", R"({"agent_id":"b","command":"sleep 1000","timeout_sec":2000})");
  for (int i = 0; i < 12; ++i) begin("GET", path + "/output?follow=true", "");
  gateway->reload(local + keys_yaml("ac"));
  for (const auto& each : open) EXPECT_TRUE(ends_within(*each, 20));
  EXPECT_EQ(gateway->log().find("key_refused"), std::string::npos);
  EXPECT_EQ(ask(*gateway, "GET", "/backends", {{"Authorization", "Bearer isg_wrong"}}).status, 401);
  gateway->reload(local + keys_yaml("abc"));
  EXPECT_TRUE(succeeded(caller.call("DELETE", path)));
}

TEST_F(WebListeners, ARemovedKeyStartsNothingWhenItsTurnComes) {
  const std::string local =
      "allow_unisolated: true\nbackends: [{name: local}]\n"
      "limits: {max_execs: 1, exec_queue: 8, exec_queue_timeout_sec: 300}\n";
  const auto gateway = std::make_unique<Gateway>(local + keys_yaml("ab"));
  const Caller first(gateway->url(), tenant_key('a'), "a"), second(gateway->url(), tenant_key('b'), "b");
  ASSERT_TRUE(succeeded(second.write("there", "")));
  ExecStream running(first, {{"command", "sleep 1000"}, {"timeout_sec", 2000}});
  EXPECT_EQ(running.next().value_or(Json::object()).value("event", ""), "start");
  std::vector<std::unique_ptr<HttpConnection>> waiting;
  const auto wait_with = [&](const std::string& target, const Json& body) {
    const std::string text = body.dump();
    Headers headers = second.headers();
    headers.emplace_back("Content-Length", std::to_string(text.size()));
    waiting.push_back(std::make_unique<HttpConnection>(gateway->url(), 60));
    waiting.back()->send_request_head("POST", target, headers);
    waiting.back()->send(text);
  };
  const Json request{{"agent_id", "b"}, {"command", "touch got"}};
  wait_with("/exec-stream", request);
  wait_with("/exec", request);
  wait_with("/exec", {{"agent_id", "b"}, {"command", "touch got"}, {"background", true}});
  ASSERT_TRUE(eventually(
      20, [&] { return first.get("/metrics").text.find("what=\"execs_waiting\"} 3") != std::string::npos; }));
  gateway->reload(local + keys_yaml("a"));
  ASSERT_TRUE(gateway->logs("no_longer_admitted"));
  running.connection.close();
  for (const auto& each : waiting) EXPECT_EQ(each->read_response().status, 401);
  gateway->reload(local + keys_yaml("ab"));
  EXPECT_EQ(second.read("got").status, 404);
}

TEST_F(WebListeners, WrongKeysAreSlowedAndTheRightOneIsNot) {
  const auto gateway = start("");
  const Headers wrong{{"Authorization", "Bearer isg_wrong"}};
  int limited = 0;
  for (int i = 0; i < 60; ++i) {
    const Answer answer = ask(*gateway, "GET", "/backends", wrong);
    if (answer.status == 401) continue;
    EXPECT_TRUE(refused(answer, 429, "rate_limited"));
    EXPECT_GE(std::atoi(answer.header("Retry-After").c_str()), 1);
    ++limited;
  }
  EXPECT_GT(limited, 0);
  EXPECT_EQ(gateway->get("/backends").status, 200) << "all users of this machine have the same address";
  EXPECT_EQ(gateway->log().find("isg_wrong"), std::string::npos);
}

TEST_F(WebListeners, MetricsHaveAListenerOfTheirOwn) {
  const auto gateway = start("metrics: {listen: '127.0.0.1:0'}\n");
  const std::string log = gateway->log();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(log, found, std::regex("isogate\\.sock (127\\.0\\.0\\.1:[0-9]+)\""))) << log;
  const std::string url = "http://" + found[1].str();
  gateway->post("/exec", R"({"command":"true"})");
  const Answer metrics = answer_of(http_call(url, "GET", "/metrics"));
  EXPECT_EQ(metrics.status, 200);
  EXPECT_NE(metrics.text.find("isogate_execs_total{backend=\"local\",outcome=\"exited\"} 1"),
            std::string::npos)
      << metrics.text;
  for (const char* path : {"/livez", "/healthz", "/readyz"})
    EXPECT_EQ(http_call(url, "GET", path).status, 200) << path;
  const Headers key{{"Authorization", "Bearer " + gateway->key()}, {"Content-Type", "application/json"}};
  EXPECT_TRUE(
      refused(answer_of(http_call(url, "POST", "/exec", key, R"({"command":"true"})")), 404, "not_found"));
  EXPECT_TRUE(refused(answer_of(http_call(url, "GET", "/backends", key)), 404, "not_found"));
  EXPECT_TRUE(refused(ask(*gateway, "GET", "/metrics"), 401, "unauthenticated"))
      << "the others require a key";
  EXPECT_EQ(gateway->get("/metrics").status, 200);
}

TEST_F(WebListeners, ReadinessReportsEachCheck) {
  const auto gateway = start("");
  const Answer answer = ask(*gateway, "GET", "/readyz?verbose");
  ASSERT_TRUE(succeeded(answer));
  std::map<std::string, Json> checks;
  for (const Json& check : answer.body.at("checks")) checks[check.at("name")] = check;
  for (const char* name : {"accepting", "database", "state_disk", "backend", "backend/local"})
    EXPECT_EQ(checks[name].value("ok", false), true) << name << answer.text;
  EXPECT_EQ(ask(*gateway, "GET", "/readyz").body.count("checks"), 0u);

  GatewayOptions options;
  options.yaml = "backends: [{name: local}]\n";
  options.wait_ready = false;
  const Gateway none(options);
  const Answer refusal = ask(none, "GET", "/readyz?verbose");
  EXPECT_TRUE(refused(refusal, 503, "backend_unavailable"));
  checks.clear();
  for (const Json& check : refusal.body.at("/error/details/checks"_json_pointer))
    checks[check.at("name")] = check;
  EXPECT_EQ(checks["backend"].value("ok", true), false) << refusal.text;
  EXPECT_EQ(checks["accepting"].value("ok", false), true) << refusal.text;
}

// A proxy on this machine is a loopback peer, and so is whoever uses it.
TEST_F(WebListeners, ANameAProxyLeftNeedsAKey) {
  const auto gateway = start("anonymous: loopback\n");
  ASSERT_EQ(ask(*gateway, "GET", "/backends").status, 200);
  const Headers with_key = {{"Authorization", "Bearer " + gateway->key()}};
  for (const char* header :
       {"Forwarded", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Host", "X-Real-IP", "Via"}) {
    for (const char* value : {"127.0.0.1", ""}) {
      const Answer answer = ask(*gateway, "GET", "/backends", {{header, value}});
      EXPECT_TRUE(refused(answer, 401, "unauthenticated")) << header << ": " << value;
      EXPECT_EQ(answer_of(http_call(gateway->unix_url(), "GET", "/backends", {{header, value}})).status, 401)
          << "a proxy of root has the Unix socket";
    }
    Headers both = with_key;
    both.emplace_back(header, "203.0.113.1");
    EXPECT_EQ(ask(*gateway, "GET", "/backends", both).status, 200) << header;
  }
  EXPECT_EQ(ask(*gateway, "GET", "/livez", {{"X-Forwarded-For", "203.0.113.1"}}).status, 200);
}

}  // namespace
}  // namespace isogate::test
