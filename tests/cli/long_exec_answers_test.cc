// How exec -d, ps, logs and kill handle responses.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/cli/fake_gateway.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

Json running(const std::string& id, const std::string& command, int64_t seconds_ago) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return {{"exec_id", id},
          {"agent_id", "alice"},
          {"state", "running"},
          {"command", command},
          {"started_ms", now.count() - seconds_ago * 1000},
          {"stdout", {{"first_offset", 0}, {"next_offset", 3}}},
          {"stderr", {{"first_offset", 0}, {"next_offset", 0}}}};
}

Json ended(const std::string& id, const std::string& outcome, const Json& exit_code, const Json& signal,
           int64_t seconds_ago = 7300) {
  Json exec = running(id, "a\nb", seconds_ago);
  exec.update({{"state", "ended"}, {"outcome", outcome}, {"exit_code", exit_code}, {"signal", signal}});
  return exec;
}

// GET /execs/ID answers `state`, its output these events.
std::string log_answer(const std::string& request, const Json& state, const std::string& events) {
  if (request.find("/output") == std::string::npos) return json_answer(200, state.dump());
  return "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n" + events;
}

TEST(ExecBackground, PrintsTheId) {
  const std::string id = "5f0c1d7c3a9e4b6f8d2e1a0b9c8d7e6f";
  FakeGateway gateway([&](const std::string&) { return json_answer(202, running(id, "x", 0).dump()); });
  auto done = run_client(gateway.url(), {"exec", "-d", "-c", "make"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, id + "\n");
  EXPECT_EQ(body_of(gateway.requests().at(0)), Json::parse(R"({"command":"make","background":true})"));
  auto json = run_client(gateway.url(), {"exec", "-d", "--json", "-it", "-c", "make"});
  EXPECT_EQ(Json::parse(json.out).at("state"), "running");
  EXPECT_EQ(body_of(gateway.requests().at(1)), Json::parse(R"({"command":"make","background":true,
      "stdin_open":true,"pty":{"cols":80,"rows":24}})"));
}

TEST(ExecBackground, PrintsNothingThatIsNoId) {
  for (const char* id : {"", "5f0c", "5f0c1d7c3a9e4b6f8d2e1a0b9c8d7e6F", "x\x1b]0;title\a; rm -rf ~"}) {
    FakeGateway gateway([&](const std::string&) { return json_answer(202, running(id, "x", 0).dump()); });
    auto done = run_client(gateway.url(), {"exec", "-d", "-c", "make"});
    EXPECT_EQ(done.exit_code, 125) << id;
    EXPECT_EQ(done.out, "") << id;
    EXPECT_EQ(done.err.find('\x1b'), std::string::npos);
  }
}

TEST(ExecBackground, ARefusalIs125) {
  FakeGateway gateway([](const std::string&) { return refusal(501, "unsupported", "no"); });
  auto done = run_client(gateway.url(), {"exec", "-d", "-c", "make"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_EQ(done.out, "");
}

TEST(Ps, ListsTheNewestFirst) {
  FakeGateway gateway([](const std::string&) {
    return json_answer(200,
                       Json({{"execs",
                              {ended("e1", "exited", 3, nullptr), running("r1", std::string(70, 'x'), 65),
                               ended("e2", "signaled", 143, "SIGTERM", 7400)}}})
                           .dump());
  });
  auto done = run_client(gateway.url(), {"ps", "--agent", "a b"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out,
            "EXEC ID  AGENT  STATE    OUTCOME           STARTED    COMMAND\n"
            "r1       alice  running  -                 1 min ago  " +
                std::string(60, 'x') +
                "…\n"
                "e1       alice  ended    exited 3          2 h ago    a b\n"
                "e2       alice  ended    signaled SIGTERM  2 h ago    a b\n");
  EXPECT_TRUE(gateway.requests().at(0).starts_with("GET /execs?agent_id=a%20b HTTP"));
}

TEST(Ps, AnInvalidAnswerIs125) {
  for (const char* answer : {"", "{}", R"({"execs":[{}]})"}) {
    FakeGateway gateway([&](const std::string&) { return json_answer(200, answer); });
    EXPECT_EQ(run_client(gateway.url(), {"ps"}).exit_code, 125) << answer;
  }
}

TEST(Logs, PrintsBothStreams) {
  FakeGateway gateway([](const std::string& request) {
    return log_answer(request, running("r1", "x", 1),
                      "{\"event\":\"stdout\",\"offset\":0,\"data\":\"out\",\"encoding\":\"utf-8\"}\n"
                      "{\"event\":\"stderr\",\"offset\":0,\"data\":\"/w==\",\"encoding\":\"base64\"}\n");
  });
  auto done = run_client(gateway.url(), {"logs", "r1"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "out");
  EXPECT_EQ(done.err, "\xff");
  EXPECT_TRUE(gateway.requests().back().starts_with("GET /execs/r1/output HTTP"));
}

TEST(Logs, FollowGoesOnToTheEndWhateverItIs) {
  const std::string events =
      "{\"event\":\"stdout\",\"offset\":5,\"data\":\"out\",\"encoding\":\"utf-8\"}\n"
      "{\"event\":\"exit\",\"outcome\":\"exited\",\"exit_code\":9}\n";
  FakeGateway gateway(
      [&](const std::string& request) { return log_answer(request, running("r1", "x", 1), events); });
  auto done = run_client(gateway.url(), {"logs", "-f", "r1"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "out");
  EXPECT_TRUE(gateway.requests().back().starts_with("GET /execs/r1/output?follow=true HTTP"));
  EXPECT_EQ(run_client(gateway.url(), {"logs", "-f", "--json", "r1"}).out, events);
}

TEST(Logs, OutputThatIsCutShortIs125) {
  const std::string part = "{\"event\":\"stdout\",\"offset\":0,\"data\":\"ou\",\"encoding\":\"utf-8\"}\n";
  for (const std::string& events : {std::string(), part, part + "{\"event\":\"std"}) {
    FakeGateway gateway(
        [&](const std::string& request) { return log_answer(request, running("r1", "x", 1), events); });
    EXPECT_EQ(run_client(gateway.url(), {"logs", "r1"}).exit_code, 125) << events;
    EXPECT_EQ(run_client(gateway.url(), {"logs", "-f", "r1"}).exit_code, 125) << events;
  }
}

TEST(Logs, OneThatIsForgottenIs1) {
  FakeGateway gateway([](const std::string& request) {
    return request.find("/output") == std::string::npos
               ? json_answer(200, ended("e1", "exited", 0, nullptr).dump())
               : refusal(404, "exec_not_found", "it is forgotten");
  });
  auto done = run_client(gateway.url(), {"logs", "e1"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("isogate ps"), std::string::npos) << done.err;
}

TEST(Kill, SaysHowItEnded) {
  FakeGateway gateway(
      [](const std::string&) { return json_answer(200, ended("e1", "killed", 137, "SIGKILL").dump()); });
  auto done = run_client(gateway.url(), {"kill", "e1"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "killed\n");
  EXPECT_TRUE(gateway.requests().at(0).starts_with("DELETE /execs/e1 HTTP"));
}

TEST(Kill, SendsASignal) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, "{}"); });
  auto done = run_client(gateway.url(), {"kill", "-s", "TERM", "e1"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "");
  EXPECT_TRUE(gateway.requests().at(0).starts_with("POST /execs/e1/signal HTTP"));
  EXPECT_EQ(body_of(gateway.requests().at(0)), Json::parse(R"({"signal":"TERM"})"));
}

TEST(Kill, ARefusalIs1) {
  FakeGateway gateway([](const std::string&) { return refusal(404, "exec_not_found", "there is none"); });
  EXPECT_EQ(run_client(gateway.url(), {"kill", "e1"}).exit_code, 1);
}

}  // namespace
}  // namespace isogate::test
