// What callers make the gateway keep: no response costs a multiple of its bytes, and what does not fit is
// refused before it has any effect.
#include <sys/socket.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

constexpr size_t kMiB = 1 << 20;

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    if (is_root() && !root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  }

  // 4 MiB for bodies and answers, of which a tenant has half.
  static std::unique_ptr<Gateway> tight(const std::string& more = {}) {
    return std::make_unique<Gateway>(
        more +
        "allow_unisolated: true\nbackends: [{name: local}]\n"
        "limits: {max_held_bytes: 4194304, max_json_bytes: 1048576, body_idle_timeout_sec: 60}\n"
        "exec: {max_max_output_bytes: 524288}\n" +
        keys_yaml("abc"));
  }
  static Caller caller(const Gateway& gateway, char tenant) {
    return {gateway.url(), tenant_key(tenant), "agent"};
  }

  // Sends a body of that size without its last byte.
  static std::unique_ptr<HttpConnection> hold_body(const Gateway& gateway, char tenant, size_t size) {
    auto connection = std::make_unique<HttpConnection>(gateway.url(), 20);
    Headers headers = caller(gateway, tenant).headers();
    headers.emplace_back("Content-Length", std::to_string(size));
    connection->send_request_head("POST", "/exec", headers);
    connection->send(std::string(size - 1, ' '));
    return connection;
  }
  static long held(const Gateway& gateway) {
    const std::string text = caller(gateway, 'c').get("/metrics").text;
    std::smatch found;
    const std::regex line("isogate_current\\{what=\"held_bytes\"\\} ([0-9.e+]+)");
    return std::regex_search(text, found, line) ? static_cast<long>(std::stod(found[1])) : -1;
  }
};

long peak_kib(pid_t pid) {
  const std::string status = read_whole("/proc/" + std::to_string(pid) + "/status");
  const size_t at = status.find("VmHWM:");
  return at == std::string::npos ? -1 : std::stol(status.substr(at + 6));
}

// Large bodies are parsed outside of the front's one thread, and checked like all others.
TEST_F(Memory, LargeBodiesAreCheckedAsSmallOnesAre) {
  const auto gateway = tight();
  const Caller me = caller(*gateway, 'a');
  const std::string large(600 << 10, 'A');
  EXPECT_EQ(me.run_argv({"wc", "-c"}, {{"stdin", large}}).at("stdout"), "614400\n");
  EXPECT_EQ(me.run_argv({"wc", "-c"}, {{"stdin", large}, {"stdin_encoding", "base64"}}).at("stdout"),
            "460800\n");
  EXPECT_TRUE(
      refused(me.exec("wc", {{"stdin", large + "!"}, {"stdin_encoding", "base64"}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(me.exec("wc", {{"stdim", large}}), 400, "invalid_request"));
  const std::string key_twice = R"({"command":"true","stdin":")" + large + R"(","stdin":""})";
  EXPECT_TRUE(refused(me.call("POST", "/exec", me.headers(), key_twice), 400, "invalid_request"));
  EXPECT_TRUE(refused(me.call("POST", "/exec", me.headers(), "{" + large), 400, "invalid_request"));
  EXPECT_TRUE(
      succeeded(me.post("/workspace/write", {{"path", "f"}, {"content", large}, {"encoding", "base64"}})));
  EXPECT_EQ(me.out("stat -c %s f"), "460800\n");
  EXPECT_EQ(held(*gateway), 0) << "nothing of it is kept";
}

TEST_F(Memory, AnAnswerOfControlCharactersCostsItsBytesOnce) {
  const Gateway gateway("allow_unisolated: true\nbackends: [{name: local}]\n");
  const Caller me(gateway, "a");
  me.run("true");
  const pid_t front = front_of(gateway);
  std::ofstream("/proc/" + std::to_string(front) + "/clear_refs") << 5;  // resets VmHWM
  const long before = peak_kib(front);
  const Json result = me.run("head -c 8388608 /dev/zero", {{"max_output_bytes", 8 * kMiB}});
  EXPECT_LT(peak_kib(front) - before, kib_bound(20 * 1024)) << "KiB for 8 MiB of output";
  EXPECT_EQ(result.at("stdout_encoding"), "base64");
  EXPECT_EQ(from_base64(result.at("stdout")), std::string(8 * kMiB, '\0'));
}

TEST_F(Memory, ALongListOfSandboxesIsSentInPieces) {
  if (std::system("command -v sqlite3 > /dev/null") != 0) GTEST_SKIP() << "sqlite3(1) is not installed";
  const TemporaryDirectory state;
  GatewayOptions options{.yaml = "allow_unisolated: true\nbackends: [{name: local}]\n",
                         .state_dir = state.path()};
  auto gateway = std::make_unique<Gateway>(options);
  Caller(*gateway, "a").run("true");
  gateway->stop();
  const std::string more =
      "INSERT INTO sandboxes WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
      "SELECT sandbox_id || i, tenant, agent_id || i, backend, handle, uid, isolation, created_ms, "
      "last_used_ms, state, disk_limit_bytes, image, expires_ms, e2b_record FROM sandboxes, n";
  ASSERT_EQ(std::system(("sqlite3 " + state.path() + "/front/state.db \"" + more + "\"").c_str()), 0);
  gateway = std::make_unique<Gateway>(options);
  const Answer answer = Caller(*gateway, "a").get("/sandboxes");
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.header("Transfer-Encoding"), "chunked") << answer.text.size() << " bytes";
  std::set<std::string> listed;
  for (const Json& row : answer.body.at("sandboxes")) listed.insert(row.at("agent_id"));
  EXPECT_EQ(listed.size(), 3001u);
}

TEST_F(Memory, AListOfE2bProcessesWithoutRoomIsRefusedBeforeItBegins) {
  const auto gateway = tight(kE2b);
  const Json box = e2b_box(*gateway);
  EXPECT_EQ(e2b_processes(*gateway, box).status, 200);
  const auto first = hold_body(*gateway, 'a', kMiB), second = hold_body(*gateway, 'a', kMiB - 100000);
  ASSERT_TRUE(eventually(10, [&] { return held(*gateway) >= static_cast<long>(2 * kMiB) - 100002; }));
  EXPECT_EQ(e2b_processes(*gateway, box).status, 429);
}

TEST_F(Memory, ALongListOfE2bProcessesIsSentInPieces) {
  const Gateway gateway("allow_unisolated: true\nbackends: [{name: local}]\n" + kE2b + keys_yaml("a"));
  const Json box = e2b_box(gateway);
  std::vector<std::unique_ptr<HttpConnection>> running;
  for (int i = 0; i < 3; ++i) {
    const Json args = Json::array({"-c", "sleep 300", std::string(60000, 'x')});
    const Json start{{"process", {{"cmd", "/bin/sh"}, {"args", args}}}};
    running.push_back(e2b_start(gateway, box, start));
  }
  const Answer answer = e2b_processes(gateway, box);
  ASSERT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(answer.header("Transfer-Encoding"), "chunked") << answer.text.size() << " bytes";
  ASSERT_EQ(answer.body.at("processes").size(), 3u);
  EXPECT_EQ(answer.body.at("processes").at(0).at("config").at("args").at(2), std::string(60000, 'x'));
}

TEST_F(Memory, MoreOutputThanTheCapIsRefused) {
  const Gateway gateway("allow_unisolated: true\nbackends: [{name: local}]\n");
  const Caller me(gateway, "a");
  EXPECT_TRUE(refused(me.exec("true", {{"max_output_bytes", 16 * kMiB + 1}}), 400, "invalid_request"));
}

TEST_F(Memory, ATenantWithItsShareIsRefusedAndTheOthersAreServed) {
  const auto gateway = tight();
  std::vector<std::unique_ptr<HttpConnection>> bodies;
  for (int i = 0; i < 2; ++i) bodies.push_back(hold_body(*gateway, 'a', kMiB));
  ASSERT_TRUE(eventually(10, [&] { return held(*gateway) >= static_cast<long>(2 * kMiB) - 2; }));
  const Answer none = caller(*gateway, 'a').exec("echo " + std::string(100000, 'x') + " > ran");
  EXPECT_TRUE(refused(none, 429, "rate_limited"));
  EXPECT_EQ(none.header("Retry-After"), "1");
  EXPECT_NE(none.text.find("this tenant"), std::string::npos) << none.text;
  EXPECT_EQ(caller(*gateway, 'b').out("echo served"), "served\n");

  for (int i = 0; i < 2; ++i) bodies.push_back(hold_body(*gateway, 'b', kMiB));
  ASSERT_TRUE(eventually(10, [&] { return held(*gateway) >= static_cast<long>(4 * kMiB) - 4; }));
  const Answer full = caller(*gateway, 'c').exec("true");
  EXPECT_TRUE(refused(full, 429, "rate_limited"));
  EXPECT_NE(full.text.find("all requests"), std::string::npos) << full.text;

  bodies.clear();
  EXPECT_TRUE(eventually(10, [&] { return held(*gateway) == 0; })) << held(*gateway);
  EXPECT_EQ(caller(*gateway, 'a').out("ls"), "") << "something of a refused request ran";
}

TEST_F(Memory, OutputIsClaimedBeforeTheProgramStarts) {
  const auto gateway = tight();
  const Caller me = caller(*gateway, 'a');
  std::vector<std::thread> holding;
  for (int i = 0; i < 2; ++i)
    holding.emplace_back([&] {
      EXPECT_EQ(me.run("while [ ! -e stop ]; do sleep 0.02; done; echo ended", {{"max_output_bytes", 500000}})
                    .at("stdout"),
                "ended\n");
    });
  ASSERT_TRUE(eventually(10, [&] { return held(*gateway) >= 2000000; }));
  EXPECT_TRUE(refused(me.exec("touch ran", {{"max_output_bytes", 50000}}), 429, "rate_limited"));
  EXPECT_EQ(me.run("ls", {{"max_output_bytes", 1000}}).at("stdout"), "");
  me.run("touch stop", {{"max_output_bytes", 1000}});
  for (std::thread& each : holding) each.join();
  EXPECT_EQ(me.run("ls", {{"max_output_bytes", 50000}}).at("stdout"), "stop\n");
  EXPECT_TRUE(eventually(5, [&] { return held(*gateway) == 0; })) << held(*gateway);
}

// Empty values take memory, too: 100,000 empty arguments are a few MiB.
TEST_F(Memory, ManySmallArgumentsCount) {
  const auto gateway = tight();
  const Caller me = caller(*gateway, 'a');
  std::vector<std::string> argv(100000);
  argv[0] = "true";
  EXPECT_TRUE(refused(me.post("/exec", {{"argv", argv}}), 429, "rate_limited"));
  argv.resize(10000);
  EXPECT_EQ(me.run_argv(argv).at("exit_code"), 0);
}

// A response that nobody reads counts against its tenant for as long as it is kept.
TEST_F(Memory, AnUnreadAnswerIsHeldUntilItIsDropped) {
  const auto gateway = tight();
  const Caller me = caller(*gateway, 'a');
  ASSERT_TRUE(succeeded(me.write("big", std::string(900000, 'x'))));
  std::vector<std::unique_ptr<HttpConnection>> readers;
  const std::string body = R"({"agent_id":"agent","path":"big"})";
  Headers headers = me.headers();
  headers.emplace_back("Content-Length", std::to_string(body.size()));
  bool refusal = false;
  for (int i = 0; i < 60 && !refusal; ++i) {  // the kernel takes the first few
    readers.push_back(std::make_unique<HttpConnection>(gateway->url(), 20));
    const int small = 4096;
    ::setsockopt(readers.back()->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int j = 0; j < 8; ++j) {
      readers.back()->send_request_head("POST", "/workspace/read", headers);
      readers.back()->send(body);
    }
    refusal = eventually(0.2, [&] { return me.read("big").status == 429; });
  }
  EXPECT_TRUE(refusal) << "responses pile up: " << held(*gateway);
  EXPECT_EQ(caller(*gateway, 'b').out("echo served"), "served\n");
  readers.clear();
  EXPECT_TRUE(eventually(10, [&] { return held(*gateway) == 0; })) << held(*gateway);
  EXPECT_EQ(me.read("big").status, 200);
}

// A stream that nobody reads counts against its tenant with the most that it can keep, and keeps no more.
TEST_F(Memory, AnUnreadStreamCostsWhatWasClaimedForIt) {
  const auto gateway = tight();
  const Caller me = caller(*gateway, 'a');
  me.run("true", {{"max_output_bytes", 1000}});
  const pid_t front = front_of(*gateway);
  const std::string body = R"({"agent_id":"agent","command":"yes '' & yes '' >&2","lines":true})";
  Headers headers = me.headers();
  headers.emplace_back("Content-Length", std::to_string(body.size()));
  const long before = resident_kib(front);
  std::vector<std::unique_ptr<HttpConnection>> readers;
  for (int i = 0; i < 3; ++i) {
    readers.push_back(std::make_unique<HttpConnection>(gateway->url(), 20));
    const int small = 4096;
    ::setsockopt(readers.back()->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    readers.back()->send_request_head("POST", "/exec-stream", headers);
    readers.back()->send(body);
  }
  ASSERT_TRUE(eventually(10, [&] { return held(*gateway) >= static_cast<long>(3 * kMiB / 2); }))
      << held(*gateway);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // until their sockets are full
  EXPECT_LT(resident_kib(front) - before, kib_bound(3 * 1024));
  const Answer none = me.post("/exec-stream", {{"command", "touch ran"}, {"lines", true}});
  EXPECT_TRUE(refused(none, 429, "rate_limited"));
  readers.clear();
  EXPECT_TRUE(eventually(10, [&] { return held(*gateway) == 0; })) << held(*gateway);
  EXPECT_EQ(me.run("ls", {{"max_output_bytes", 1000}}).at("stdout"), "") << "a refused stream ran";
}

}  // namespace
}  // namespace isogate::test
