// How `isogate exec` handles responses, valid and invalid.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/limits.h"
#include "tests/cli/fake_gateway.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

Json result(const std::string& outcome, const Json& exit_code) {
  return {{"exec_id", "5f0c1d7c3a9e4b6f8d2e1a0b9c8d7e6f"},
          {"outcome", outcome},
          {"exit_code", exit_code},
          {"signal", nullptr},
          {"stdout", "out\n"},
          {"stderr", "err\n"},
          {"stdout_encoding", "utf-8"},
          {"stderr_encoding", "utf-8"},
          {"truncated", false}};
}

std::string stream(const std::string& events) {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n" + events;
}

TEST(Exec, PrintsBytesAndEndsWithTheProgramsCode) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, result("exited", 3).dump()); });
  auto done = run_client(gateway.url(), {"exec", "--", "true"});
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_EQ(done.out, "out\n");
  EXPECT_EQ(done.err, "err\n");
}

TEST(Exec, Base64OutputArrivesAsBytes) {
  Json answer = result("exited", 0);
  answer["stdout"] = "//4A";
  answer["stdout_encoding"] = "base64";
  FakeGateway gateway([&](const std::string&) { return json_answer(200, answer.dump()); });
  EXPECT_EQ(run_client(gateway.url(), {"exec", "--", "true"}).out, std::string("\xff\xfe\x00", 3));
}

TEST(Exec, EveryOutcomeHasItsCode) {
  const std::pair<const char*, int> outcomes[] = {
      {"signaled", 139}, {"timed_out", 124}, {"oom_killed", 137}, {"killed", 137}};
  for (const auto& [outcome, code] : outcomes) {
    FakeGateway gateway(
        [&, o = outcome, c = code](const std::string&) { return json_answer(200, result(o, c).dump()); });
    EXPECT_EQ(run_client(gateway.url(), {"exec", "--", "true"}).exit_code, code) << outcome;
  }
}

TEST(Exec, WhatEndedAProgramIsReportedInALine) {
  const std::pair<const char*, const char*> outcomes[] = {
      {"timed_out", "isogate: timed out after 10 s\n"},
      {"oom_killed", "isogate: out of memory, and killed"},
      {"killed", "isogate: ended by the gateway"}};
  for (const auto& [outcome, line] : outcomes) {
    Json answer = result(outcome, 137);
    answer["duration_ms"] = 10003.2;
    FakeGateway gateway([&](const std::string&) { return json_answer(200, answer.dump()); });
    EXPECT_NE(run_client(gateway.url(), {"exec", "--", "true"}).err.find(line), std::string::npos) << outcome;
    EXPECT_EQ(run_client(gateway.url(), {"exec", "--json", "--", "true"}).err, "") << outcome;
  }
}

TEST(Exec, AnUnknownOutcomeIsNeverSuccess) {
  Json error = {{"error",
                 {{"code", "outcome_unknown"},
                  {"message", "lost it"},
                  {"retryable", false},
                  {"details", result("unknown", nullptr)}}},
                {"request_id", "r"}};
  const std::string answers[] = {json_answer(502, error.dump()),
                                 json_answer(200, result("unknown", nullptr).dump()),
                                 json_answer(200, result("unknown", 0).dump())};
  for (const std::string& answer : answers) {
    FakeGateway gateway([&](const std::string&) { return answer; });
    auto done = run_client(gateway.url(), {"exec", "--", "true"});
    EXPECT_EQ(done.exit_code, 125) << answer;
    EXPECT_EQ(done.out, "out\n") << answer;
    EXPECT_NE(done.err.find("check before you run it again"), std::string::npos) << done.err;
  }
}

TEST(Exec, AnInvalidAnswerIs125) {
  const std::string answers[] = {
      "",
      "rubbish\r\n\r\n",
      json_answer(200, ""),
      json_answer(200, "{}"),
      json_answer(200, "[1]"),
      json_answer(200, R"({"outcome":"exited"})"),
      json_answer(200, R"({"outcome":"exited","exit_code":0})"),
      json_answer(200, R"({"outcome":"exited","exit_code":0,"stdout":"a","stderr":1})"),
      json_answer(500, "<html>"),
      json_answer(302, "")};
  for (const std::string& answer : answers) {
    FakeGateway gateway([&](const std::string&) { return answer; });
    auto done = run_client(gateway.url(), {"exec", "--", "true"});
    EXPECT_EQ(done.exit_code, 125) << answer;
    EXPECT_NE(done.err.find("isogate: "), std::string::npos) << answer;
  }
}

TEST(Exec, ARefusalIs125AndSaysWhatToDo) {
  FakeGateway gateway(
      [](const std::string&) { return refusal(503, "backend_unavailable", "no backend is eligible"); });
  auto done = run_client(gateway.url(), {"exec", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_EQ(done.out, "");
  EXPECT_NE(done.err.find("no backend is eligible (backend_unavailable)"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("isogate probe"), std::string::npos) << done.err;
}

TEST(Exec, WithJsonErrorsAreOneObjectOnStderr) {
  FakeGateway gateway([](const std::string&) { return refusal(401, "unauthenticated", "no valid key"); });
  auto done = run_client(gateway.url(), {"exec", "--json", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_EQ(done.out, "");
  EXPECT_EQ(Json::parse(done.err).at("error").at("code"), "unauthenticated");
  auto nobody = run_client("http://127.0.0.1:1", {"exec", "--json", "--", "true"});
  EXPECT_EQ(nobody.exit_code, 125);
  EXPECT_EQ(Json::parse(nobody.err).at("error").at("code"), "gateway_unreachable");
}

TEST(Exec, JsonIsTheGatewaysAnswer) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, result("exited", 4).dump()); });
  auto done = run_client(gateway.url(), {"exec", "--json", "--", "true"});
  EXPECT_EQ(done.exit_code, 4);
  EXPECT_EQ(Json::parse(done.out), result("exited", 4));
}

TEST(Exec, WithoutAGatewayItSaysHowToStartOne) {
  auto done = run_client("http://127.0.0.1:1", {"exec", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_NE(done.err.find("isogate serve"), std::string::npos) << done.err;
}

TEST(Exec, EveryOptionReachesTheGateway) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, result("exited", 0).dump()); });
  ProgramOptions options;
  options.stdin_bytes = "in\n";
  std::vector<std::string> arguments = {"exec",  "--agent", "alice", "--timeout", "2.5",
                                        "--env", "A=1",     "--env", "B=x=y",     "--cwd",
                                        "sub",   "--user",  "bob",   "--stdin"};
  Json cgroup;
  for (const LimitKind& kind : kLimitKinds) {
    if (kind.most_of_exec == 0) continue;
    std::string flag = kind.setting;
    std::replace(flag.begin(), flag.end(), '_', '-');
    arguments.insert(arguments.end(), {"--" + flag, std::to_string(kind.least_of_exec + 7)});
    cgroup[kind.setting] = kind.least_of_exec + 7;
  }
  arguments.insert(arguments.end(), {"--backend", "b1", "--min-isolation", "container", "--artifact-dir",
                                     "out", "--max-output", "77", "--", "ls", "-l", "--json", "[a]", ""});
  run_client(gateway.url(), arguments, options);
  ASSERT_EQ(gateway.requests().size(), 1u);
  std::string request = gateway.requests()[0];
  EXPECT_EQ(request.find("POST /exec HTTP/1.1"), 0u);
  Json expected = Json::parse(R"({"argv":["ls","-l","--json","[a]",""],"agent_id":"alice","timeout_sec":2.5,
      "env":{"A":"1","B":"x=y"},"cwd":"sub","user":"bob","stdin":"in\n","stdin_encoding":"utf-8",
      "backend":"b1","min_isolation":"container","artifact_dir":"out","max_output_bytes":77})");
  expected["cgroup"] = cgroup;
  EXPECT_EQ(body_of(request), expected);
}

TEST(Exec, ACommandLineIsOneString) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, result("exited", 0).dump()); });
  run_client(gateway.url(), {"exec", "-c", "[ -f x ]"});
  EXPECT_EQ(body_of(gateway.requests().at(0)), Json::parse(R"({"command":"[ -f x ]"})"));
}

TEST(Exec, StdinThatIsNoTextGoesAsBase64) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, result("exited", 0).dump()); });
  ProgramOptions options;
  options.stdin_bytes = std::string("\xff\xfe\x00", 3);
  run_client(gateway.url(), {"exec", "--stdin", "--", "cat"}, options);
  Json body = body_of(gateway.requests().at(0));
  EXPECT_EQ(body["stdin"], "//4A");
  EXPECT_EQ(body["stdin_encoding"], "base64");
}

TEST(Exec, StdinWithANulGoesAsBase64) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, result("exited", 0).dump()); });
  ProgramOptions options;
  options.stdin_bytes = std::string("a\0b", 3);
  run_client(gateway.url(), {"exec", "--stdin", "--", "xargs", "-0"}, options);
  Json body = body_of(gateway.requests().at(0));
  EXPECT_EQ(body["stdin"], "YQBi");
  EXPECT_EQ(body["stdin_encoding"], "base64");
}

TEST(Exec, ArgumentsThatAreNoTextAreRefusedBeforeTheCall) {
  FakeGateway gateway([](const std::string&) { return json_answer(200, result("exited", 0).dump()); });
  auto done = run_client(gateway.url(), {"exec", "--", "cat", "\xff"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_TRUE(gateway.requests().empty());
}

TEST(ExecStream, ShowsOutputAndEndsWithTheProgramsCode) {
  FakeGateway gateway([](const std::string&) {
    return stream(
        "{\"event\":\"start\"}\n{\"event\":\"stdout\",\"data\":\"a\",\"encoding\":\"utf-8\"}\n"
        "{\"event\":\"ping\"}\n{\"event\":\"stderr\",\"data\":\"b\",\"encoding\":\"utf-8\"}\n"
        "{\"event\":\"exit\",\"outcome\":\"signaled\",\"exit_code\":137}\n");
  });
  auto done = run_client(gateway.url(), {"exec", "--stream", "--", "true"});
  EXPECT_EQ(done.exit_code, 137);
  EXPECT_EQ(done.out, "a");
  EXPECT_EQ(done.err, "b");
  EXPECT_EQ(gateway.requests().at(0).find("POST /exec-stream HTTP/1.1"), 0u);
}

TEST(ExecStream, LinesGetTheirNewlinesBack) {
  FakeGateway gateway([](const std::string&) {
    return stream(
        "{\"event\":\"stdout\",\"data\":\"one\",\"encoding\":\"utf-8\"}\n"
        "{\"event\":\"stdout\",\"data\":\"tw\",\"encoding\":\"utf-8\",\"partial\":true}\n"
        "{\"event\":\"stdout\",\"data\":\"o\",\"encoding\":\"utf-8\"}\n"
        "{\"event\":\"exit\",\"outcome\":\"exited\",\"exit_code\":0}\n");
  });
  auto done = run_client(gateway.url(), {"exec", "--stream", "--lines", "--", "true"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out, "one\ntwo\n");
  EXPECT_EQ(body_of(gateway.requests().at(0)).at("lines"), true);
}

TEST(ExecStream, AnEndWithoutAnExitEventIs125) {
  FakeGateway gateway([](const std::string&) {
    return stream("{\"event\":\"start\"}\n{\"event\":\"stdout\",\"data\":\"a\",\"encoding\":\"utf-8\"}\n");
  });
  auto done = run_client(gateway.url(), {"exec", "--stream", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_EQ(done.out, "a");
  EXPECT_NE(done.err.find("without an exit event"), std::string::npos) << done.err;
}

TEST(ExecStream, AChunkedStreamCutShortIs125) {
  FakeGateway gateway([](const std::string&) {
    return std::string(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: "
        "chunked\r\n\r\n12\r\n{\"event\":\"start\"}\n\r\n");
  });
  EXPECT_EQ(run_client(gateway.url(), {"exec", "--stream", "--", "true"}).exit_code, 125);
}

TEST(ExecStream, WithJsonEveryEventIsALine) {
  std::string events = "{\"event\":\"start\"}\n{\"event\":\"exit\",\"outcome\":\"exited\",\"exit_code\":5}\n";
  FakeGateway gateway([&](const std::string&) { return stream(events); });
  auto done = run_client(gateway.url(), {"exec", "--stream", "--json", "--", "true"});
  EXPECT_EQ(done.exit_code, 5);
  EXPECT_EQ(done.out, events);
}

TEST(ExecStream, CtrlCClosesTheConnectionAndEndsWith130) {
  FakeGateway gateway([](const std::string&) {
    return stream("{\"event\":\"start\"}\n{\"event\":\"stdout\",\"data\":\"up\",\"encoding\":\"utf-8\"}\n");
  });
  gateway.hold = true;
  ProgramOptions options;
  options.env = {{"ISOGATE_URL", gateway.url()}, {"ISOGATE_KEY", "k"}};
  Program program({isogate_binary(), "exec", "--stream", "--", "sleep", "100"}, options);
  ASSERT_TRUE(program.wait_for_output("up", 20));
  program.signal(SIGINT);
  ASSERT_TRUE(program.wait(20));
  EXPECT_EQ(program.result.exit_code, 130);
  for (int i = 0; i < 2000 && gateway.closed_by_client == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(gateway.closed_by_client, 1);
}

}  // namespace
}  // namespace isogate::test
