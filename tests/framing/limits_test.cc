// What is limited, and the response beyond each limit. Each gateway here has small limits.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <regex>
#include <thread>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

std::string configured(const std::string& limits) {
  return "allow_unisolated: true\nbackends: [{name: local}]\nlimits: {" + limits + "}\n";
}

std::unique_ptr<Gateway> with(const std::string& limits) {
  return std::make_unique<Gateway>(configured(limits));
}

// Returns once the front has the new settings: then it admits a new origin.
void reload_with(Gateway& gateway, const std::string& limits) {
  static int reloads = 0;
  const std::string origin = "https://reload" + std::to_string(++reloads) + ".example";
  gateway.reload(configured(limits) + "cors: {origins: ['" + origin + "']}\n");
  ASSERT_TRUE(eventually(10, [&] {
    return http_call(gateway.unix_url(), "GET", "/livez", {{"Origin", origin}})
               .header("Access-Control-Allow-Origin") == origin;
  }));
}

class Limits : public testing::Test {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  }
};

using Connections = std::vector<std::unique_ptr<HttpConnection>>;

// Each got a response, so each was admitted.
Connections open(const Gateway& gateway, size_t count) {
  Connections all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(std::make_unique<HttpConnection>(gateway.url(), 10));
    EXPECT_EQ(all.back()->request("GET", "/livez").status, 200);
  }
  return all;
}

bool refused_at_the_door(const Gateway& gateway, const std::string& setting) {
  HttpConnection one(gateway.url(), 10);
  const Answer answer = answer_of(one.read_response());
  EXPECT_TRUE(refused(answer, 429, "rate_limited"));
  EXPECT_EQ(answer.header("Retry-After"), "1");
  EXPECT_EQ(answer.header("Connection"), "close");
  return answer.text.find(setting) != std::string::npos && one.closed_within(5);
}

TEST_F(Limits, OneConnectionTooManyIs429AndTheNextAfterOneEndsIsServed) {
  const auto gateway = with("max_connections: 8, max_connections_per_peer: 8");
  Connections all = open(*gateway, 8);
  EXPECT_TRUE(refused_at_the_door(*gateway, "max_connections"));
  for (auto& each : all) EXPECT_EQ(each->request("GET", "/livez").status, 200) << "the others continue";
  all.pop_back();
  EXPECT_TRUE(eventually(5, [&] {
    try {
      return HttpConnection(gateway->url(), 5).request("GET", "/livez").status == 200;
    } catch (const std::runtime_error&) {
      return false;
    }
  }));
}

TEST_F(Limits, OneAddressDoesNotTakeAllConnections) {
  const auto gateway = with("max_connections: 100, max_connections_per_peer: 4");
  Connections all = open(*gateway, 4);
  EXPECT_TRUE(refused_at_the_door(*gateway, "max_connections_per_peer"));
  EXPECT_EQ(http_call("unix:" + gateway->state_dir() + "/isogate.sock", "GET", "/livez").status, 200)
      << "another peer is shut out";
  all.clear();
  EXPECT_TRUE(eventually(5, [&] { return Connections(open(*gateway, 1)).size() == 1; }));
}

TEST_F(Limits, TheMetricsAreServedWhateverTheirReaderHasOpenElsewhere) {
  const Gateway gateway(configured("max_connections: 100, max_connections_per_peer: 4") +
                        "metrics: {listen: '127.0.0.1:0'}\n");
  const std::string log = gateway.log();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(log, found, std::regex("isogate\\.sock (127\\.0\\.0\\.1:[0-9]+)\""))) << log;
  const std::string url = "http://" + found[1].str();
  const Connections all = open(gateway, 4);
  EXPECT_TRUE(refused_at_the_door(gateway, "max_connections_per_peer"));
  EXPECT_EQ(http_call(url, "GET", "/livez").status, 200);
  const HttpResponse metrics = http_call(url, "GET", "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_NE(metrics.body.find("isogate_connections_refused_total{limit=\"max_connections_per_peer\"} 1\n"),
            std::string::npos)
      << metrics.body;
}

// GET /livez from another address of this machine: the answer's first bytes.
std::string asked_from(const char* address, const Gateway& gateway) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(gateway.port())));
  ::inet_pton(AF_INET, address, &from.sin_addr);
  ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) != 0) return "cannot bind";
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return "cannot connect";
  const std::string request = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer(12, '\0');
  answer.resize(static_cast<size_t>(
      std::max<ssize_t>(::recv(socket.get(), answer.data(), answer.size(), MSG_WAITALL), 0)));
  return answer;
}

TEST_F(Limits, AQuarterOfTheConnectionsIsLeftToOtherAddresses) {
  const auto gateway = with("max_connections: 8");
  const Connections all = open(*gateway, 6);
  EXPECT_TRUE(refused_at_the_door(*gateway, "max_connections_per_peer"));
  EXPECT_EQ(asked_from("127.0.0.2", *gateway), "HTTP/1.1 200");
}

TEST_F(Limits, AConnectionWithoutARequestIsClosedAtTheHeaderDeadline) {
  const auto gateway = with("header_timeout_sec: 1, idle_timeout_sec: 60");
  HttpConnection fresh(gateway->url(), 5), used(gateway->url(), 5);
  EXPECT_EQ(used.request("GET", "/livez").status, 200);
  EXPECT_TRUE(fresh.closed_within(8));  // the default is 10 s
  EXPECT_EQ(fresh.read_until_closed(), "");
  EXPECT_EQ(used.request("GET", "/livez").status, 200) << "between requests another limit applies";
}

TEST_F(Limits, AConnectionServesSoManyRequestsAndSaysWhenItIsTheLast) {
  const auto gateway = with("max_requests_per_connection: 3");
  HttpConnection connection(gateway->url(), 5);
  EXPECT_EQ(connection.request("GET", "/livez").header("Connection"), "");
  EXPECT_EQ(connection.request("GET", "/livez").header("Connection"), "");
  EXPECT_EQ(connection.request("GET", "/livez").header("Connection"), "close");
  EXPECT_TRUE(connection.closed_within(5));
}

TEST_F(Limits, AnIdleConnectionIsClosedWithoutAWord) {
  const auto gateway = with("idle_timeout_sec: 1");
  HttpConnection fresh(gateway->url(), 5), used(gateway->url(), 5);
  EXPECT_EQ(used.request("GET", "/livez").status, 200);
  EXPECT_TRUE(fresh.closed_within(8));
  EXPECT_TRUE(used.closed_within(8));
  EXPECT_EQ(used.read_until_closed(), "");
}

TEST_F(Limits, HeaderBytesAndCountAreConfigured) {
  const auto gateway = with("max_header_bytes: 1024, max_headers: 8");
  EXPECT_EQ(http_call(gateway->url(), "GET", "/livez", {{"X", std::string(800, 'x')}}).status, 200);
  EXPECT_TRUE(refused(answer_of(http_call(gateway->url(), "GET", "/livez", {{"X", std::string(1100, 'x')}})),
                      400, "invalid_request"));
  Headers eight;
  for (int i = 0; i < 7; ++i) eight.emplace_back("X-" + std::to_string(i), "y");
  EXPECT_EQ(http_call(gateway->url(), "GET", "/livez", eight).status, 200);
  eight.emplace_back("X-8", "y");
  EXPECT_TRUE(refused(answer_of(http_call(gateway->url(), "GET", "/livez", eight)), 400, "invalid_request"));
}

Headers of_bytes(size_t size) { return {{"X", std::string(size, 'x')}}; }

Headers so_many(int count) {
  Headers headers;
  for (int i = 0; i < count; ++i) headers.emplace_back("X-" + std::to_string(i), "y");
  return headers;
}

TEST_F(Limits, AHeaderTooLargeIs400WhateverTheHeadMayHave) {
  const auto gateway = with("max_header_bytes: 1048576");
  EXPECT_EQ(http_call(gateway->url(), "GET", "/livez", of_bytes(65000)).status, 200);
  for (const size_t size : {65533, 65536, 900000})
    EXPECT_TRUE(refused(answer_of(http_call(gateway->url(), "GET", "/livez", of_bytes(size))), 400,
                        "invalid_request"))
        << size;
  EXPECT_TRUE(refused(answer_of(http_call(gateway->url(), "GET", "/livez", {{std::string(70000, 'x'), "y"}})),
                      400, "invalid_request"));
}

TEST_F(Limits, AReloadSetsThoseOfHeadsForOpenConnectionsToo) {
  const auto gateway = with("max_header_bytes: 1024, max_headers: 8");
  HttpConnection first(gateway->url(), 5), second(gateway->url(), 5), third(gateway->url(), 5);
  for (HttpConnection* each : {&first, &second, &third})
    ASSERT_EQ(each->request("GET", "/livez").status, 200);
  reload_with(*gateway, "max_header_bytes: 100000, max_headers: 50");
  EXPECT_EQ(first.request("GET", "/livez", of_bytes(60000)).status, 200);
  EXPECT_EQ(first.request("GET", "/livez", so_many(40)).status, 200);
  reload_with(*gateway, "max_header_bytes: 2048, max_headers: 10");
  EXPECT_EQ(first.request("GET", "/livez", of_bytes(1500)).status, 200);
  EXPECT_TRUE(refused(answer_of(first.request("GET", "/livez", of_bytes(3000))), 400, "invalid_request"));
  EXPECT_TRUE(refused(answer_of(second.request("GET", "/livez", so_many(20))), 400, "invalid_request"));
  reload_with(*gateway, "max_requests_per_connection: 1");
  EXPECT_EQ(third.request("GET", "/livez").header("Connection"), "close");
}

TEST_F(Limits, AReloadSetsThoseOfConnections) {
  const auto gateway = with("max_connections: 100, max_connections_per_peer: 2");
  Connections all = open(*gateway, 2);
  EXPECT_TRUE(refused_at_the_door(*gateway, "max_connections_per_peer"));
  reload_with(*gateway, "max_connections: 4, max_connections_per_peer: 100");
  for (auto& each : open(*gateway, 2)) all.push_back(std::move(each));
  EXPECT_TRUE(refused_at_the_door(*gateway, "max_connections"));
  for (auto& each : all) EXPECT_EQ(each->request("GET", "/livez").status, 200) << "the others continue";
}

TEST_F(Limits, AReloadSetsThoseOfWaiting) {
  const auto gateway = with("header_timeout_sec: 300, idle_timeout_sec: 300");
  HttpConnection fresh(gateway->url(), 5), used(gateway->url(), 5);
  EXPECT_EQ(used.request("GET", "/livez").status, 200);
  reload_with(*gateway, "header_timeout_sec: 1, idle_timeout_sec: 300");
  EXPECT_TRUE(fresh.closed_within(20));
  HttpConnection slow(gateway->url(), 20);
  EXPECT_EQ(slow.request("GET", "/livez").status, 200);
  slow.send("GET /livez HTTP/1.1\r\n");
  EXPECT_EQ(slow.read_response().status, 408);
  reload_with(*gateway, "idle_timeout_sec: 1");
  EXPECT_TRUE(used.closed_within(20));
}

// Sends a byte from time to time; true: the response is 408.
bool too_slow(HttpConnection& connection, const Caller& caller) {
  Headers headers = caller.headers();
  headers.emplace_back("Content-Length", "1000");
  connection.send_request_head("POST", "/exec", headers);
  try {
    for (int i = 0; i < 8; ++i) {
      connection.send(" ");
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  } catch (const std::runtime_error&) {  // closed: the response came before
  }
  return connection.read_response("POST").status == 408;
}

TEST_F(Limits, AReloadSetsThoseOfBodies) {
  const auto gateway = with("body_idle_timeout_sec: 300, min_bytes_per_sec: 0, write_timeout_sec: 300");
  const Caller me(*gateway, "a");
  ASSERT_EQ(me.run("head -c 50000000 /dev/zero > big").at("exit_code"), 0);
  HttpConnection sends(gateway->url(), 10), reads(gateway->url(), 10);
  for (HttpConnection* each : {&sends, &reads}) ASSERT_EQ(each->request("GET", "/livez").status, 200);
  reload_with(*gateway, "body_idle_timeout_sec: 1, min_bytes_per_sec: 100000, write_timeout_sec: 1");
  EXPECT_TRUE(too_slow(sends, me));
  reads.send_request_head("GET", "/workspace/files/a/big", me.headers());
  EXPECT_TRUE(gateway->logs("\"status\":200,\"complete\":false", 15)) << gateway->log();
}

TEST_F(Limits, AJsonBodyTooLargeIs413BeforeItIsRead) {
  const auto gateway = with("max_json_bytes: 2048");
  const Caller me(*gateway, "a");
  EXPECT_EQ(me.exec(": " + std::string(1500, 'x')).status, 200);
  EXPECT_TRUE(refused(me.exec(": " + std::string(3000, 'x')), 413, "file_too_large"));
  HttpConnection chunked(gateway->url(), 5);
  Headers headers = me.headers();
  headers.emplace_back("Transfer-Encoding", "chunked");
  chunked.send_request_head("POST", "/exec", headers);
  chunked.send("1000\r\n" + std::string(4096, ' ') + "\r\n");
  EXPECT_TRUE(refused(answer_of(chunked.read_response("POST")), 413, "file_too_large"));
  EXPECT_TRUE(chunked.closed_within(5));
}

constexpr uid_t kSomebody = 65534;

// The soft limit of a gateway that runs as kSomebody, or as this test's own user.
void limit_descriptors(pid_t pid, size_t most) {
  std::vector<std::string> argv = {"prlimit", "--pid=" + std::to_string(pid),
                                   "--nofile=" + std::to_string(most) + ":"};
  const std::string id = std::to_string(kSomebody);
  const std::vector<std::string> as = {"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"};
  if (is_root()) argv.insert(argv.begin(), as.begin(), as.end());
  const ProgramResult result = run_program(argv);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// Faults 21 and 22's sibling: no descriptor is left to accept with.
TEST_F(Limits, WithoutDescriptorsAcceptingPausesAndWhatRunsGoesOn) {
  GatewayOptions options;
  options.yaml = "allow_unisolated: true\nbackends: [{name: local}]\n";
  options.run_as = kSomebody;
  const auto gateway = std::make_unique<Gateway>(options);
  const Caller me(*gateway, "a");
  const pid_t front = front_of(*gateway);
  HttpConnection kept(gateway->url(), 10);
  ASSERT_EQ(kept.request("POST", "/exec", me.headers(), R"({"command":"true","agent_id":"a"})").status, 200);
  ExecStream running(me, {{"command", "for i in $(seq 40); do echo $i; sleep 0.1; done"}});
  ASSERT_EQ(running.next()->at("event"), "start");
  const size_t used = open_files(front).size();
  if (used == 0) GTEST_SKIP() << "an ordinary user may not look at the gateway's descriptors";
  limit_descriptors(front, used + 2);

  Connections waiting;
  for (int i = 0; i < 30; ++i) waiting.push_back(std::make_unique<HttpConnection>(gateway->url(), 10));
  ASSERT_TRUE(gateway->logs("accept_paused", 5));
  const double before = cpu_seconds(front);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(cpu_seconds(front) - before, 0.3) << "it spins";

  EXPECT_EQ(kept.request("GET", "/livez").status, 200);
  const Answer exec =
      answer_of(kept.request("POST", "/exec", me.headers(), R"({"command":"true","agent_id":"a"})"));
  EXPECT_TRUE(refused(exec, 429, "rate_limited"));
  const std::vector<Json> events = running.rest();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().value("outcome", ""), "exited") << events.back();

  waiting.clear();
  EXPECT_TRUE(eventually(
      5, [&] { return HttpConnection(gateway->url(), 5).request("GET", "/livez").status == 200; }));
  limit_descriptors(front, 4096);
  EXPECT_EQ(me.out("echo again"), "again\n");
}

}  // namespace
}  // namespace isogate::test
