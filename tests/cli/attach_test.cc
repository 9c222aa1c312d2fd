// What exec -i and -t, attach and shell do with an exec's WebSocket, against one that a test scripts.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/cli/fake_gateway.h"
#include "tests/cli/terminal.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

constexpr const char* kId = "5f0c1d7c3a9e4b6f8d2e1a0b9c8d7e6f";

std::string state(bool pty, const std::string& standard_in) {
  return Json({{"exec_id", kId},
               {"agent_id", "default"},
               {"state", "running"},
               {"command", "x"},
               {"pty", pty},
               {"stdin", standard_in}})
      .dump();
}

// Accepts every exec; `standard_in` is the `stdin` of its state.
std::string answer_to(const std::string& request, bool pty = false, const std::string& standard_in = "open") {
  if (request.starts_with("POST /exec ")) return json_answer(202, state(pty, standard_in));
  if (request.starts_with("GET /execs/")) return json_answer(200, state(pty, standard_in));
  return json_answer(200, "{}");
}

ProgramOptions client_of(const FakeGateway& gateway) {
  ProgramOptions options;
  options.env = {{"ISOGATE_URL", gateway.url()}, {"ISOGATE_KEY", "k"}, {"ISOGATE_STATE_DIR", "/nonexistent"}};
  return options;
}

// `isogate` with these arguments on a terminal, in a shell that then shows its exit code and the terminal's
// state. What comes first is "pid=<its pid>.".
std::vector<std::string> on_terminal(const FakeGateway& gateway, const std::string& arguments) {
  return {"env",
          "ISOGATE_URL=" + gateway.url(),
          "ISOGATE_KEY=k",
          "ISOGATE_STATE_DIR=/nonexistent",
          "sh",
          "-c",
          R"(sh -c 'echo pid=$$.; exec "$0" )" + arguments + R"(' "$0"; echo code=$?; stty -a; echo done)",
          isogate_binary()};
}

// A shell that takes what is typed and does nothing.
void prompt(FakeAttachment& one) {
  one.output(1, 0, "prompt> ");
  while (one.next()) {
  }
}

void expect_restored(Terminal& terminal) {
  EXPECT_TRUE(terminal.shows("done")) << terminal.everything();
  EXPECT_FALSE(terminal.echo_is_off()) << terminal.everything();
  for (const char* raw : {"-icanon", "-isig", "-opost", "-icrnl"})
    EXPECT_EQ(terminal.everything().find(raw), std::string::npos) << terminal.everything();
}

TEST(ExecInteractive, PassesStdinOutputAndTheExitCode) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request); });
  std::atomic<bool> got_all{false};
  gateway.attached = [&](FakeAttachment& one) {
    one.text(R"({"event":"start"})");
    got_all = one.receives(std::string("in\xff\n", 4) + R"({"type":"close_stdin"})");
    one.output(1, 0, "out");
    one.output(2, 0, std::string(100'000, 'e'));
    one.text(R"({"event":"ping"})");
    one.output(1, 3, "put");
    one.exit(7);
  };
  ProgramOptions options;
  options.stdin_bytes = "in\xff\n";
  auto done = run_client(gateway.url(), {"exec", "-i", "--agent", "a", "-c", "cat"}, options);
  EXPECT_EQ(done.exit_code, 7) << done.err;
  EXPECT_EQ(done.out, "output");
  EXPECT_TRUE(done.err == std::string(100'000, 'e')) << done.err.size();
  EXPECT_TRUE(got_all);
  EXPECT_EQ(body_of(gateway.requests().at(0)),
            Json::parse(R"({"command":"cat","agent_id":"a","background":true,"stdin_open":true})"));
  const std::string upgrade = gateway.requests().at(1);
  EXPECT_TRUE(upgrade.starts_with(std::string("GET /execs/") + kId + "/attach HTTP/1.1\r\n")) << upgrade;
  EXPECT_NE(upgrade.find("Authorization: Bearer test-key\r\n"), std::string::npos);
}

TEST(ExecInteractive, WorksOverAUnixSocket) {
  TemporaryDirectory directory;
  FakeGateway gateway([](const std::string& request) { return answer_to(request); }, directory.path() + "/s");
  gateway.attached = [](FakeAttachment& one) {
    one.output(1, 0, "hi");
    one.exit(0);
  };
  auto done = run_client(gateway.url(), {"exec", "-i", "--", "true"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "hi");
}

TEST(ExecInteractive, AnInterruptGoesToTheProgramAndASecondOneKillsIt) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request); });
  std::atomic<bool> killed{false};
  gateway.attached = [&](FakeAttachment& one) {
    one.output(1, 0, "up\n");
    for (int i = 0; i < 4000 && !killed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    one.text(R"({"event":"exit","outcome":"signaled","signal":"SIGKILL","exit_code":137})");
  };
  Program program({isogate_binary(), "exec", "-i", "--", "sleep", "100"}, client_of(gateway));
  ASSERT_TRUE(program.wait_for_output("up\n", 20));
  const auto signals = [&] {
    std::vector<std::string> names;
    for (const std::string& request : gateway.requests())
      if (request.starts_with(std::string("POST /execs/") + kId + "/signal"))
        names.push_back(body_of(request).at("signal"));
    return names;
  };
  const auto wait_for = [&](size_t count) {
    for (int i = 0; i < 2000 && signals().size() < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  program.signal(SIGINT);
  wait_for(1);
  EXPECT_EQ(signals(), std::vector<std::string>{"INT"});
  program.signal(SIGINT);
  wait_for(2);
  EXPECT_EQ(signals(), (std::vector<std::string>{"INT", "KILL"}));
  killed = true;
  ASSERT_TRUE(program.wait(20));
  EXPECT_EQ(program.result.exit_code, 137);
}

TEST(ExecInteractive, ALostConnectionSaysTheWayBack) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request); });
  gateway.attached = [](FakeAttachment& one) { one.output(1, 0, "some"); };
  auto done = run_client(gateway.url(), {"exec", "-i", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_EQ(done.out, "some");
  EXPECT_NE(done.err.find("contact was lost"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find(std::string("`isogate attach ") + kId + "`"), std::string::npos) << done.err;
}

TEST(ExecInteractive, ACloseOfTheGatewayGivesItsReason) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request); });
  gateway.attached = [](FakeAttachment& one) { one.close(1008, "output was dropped"); };
  auto done = run_client(gateway.url(), {"exec", "-i", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_NE(done.err.find("(1008, output was dropped)"), std::string::npos) << done.err;
}

TEST(ExecInteractive, AnInvalidHandshakeIsALostConnection) {
  FakeGateway gateway([](const std::string& request) {
    if (request.find("Sec-WebSocket-Key") == std::string::npos) return answer_to(request);
    return std::string("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: no\r\n\r\n");
  });
  auto done = run_client(gateway.url(), {"exec", "-i", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_NE(done.err.find("isogate attach"), std::string::npos) << done.err;
}

TEST(ExecInteractive, OneThatCouldNotBeStartedIs125) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request); });
  gateway.attached = [](FakeAttachment& one) {
    one.text(R"({"event":"exit","outcome":"not_started","exit_code":null,
                 "error":{"code":"unsupported","message":"it has no shell"}})");
  };
  auto done = run_client(gateway.url(), {"exec", "-i", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_NE(done.err.find("was not started: it has no shell"), std::string::npos) << done.err;
}

TEST(ExecInteractive, AnEndBeforeTheAnswerIsAnyExecs) {
  FakeGateway gateway([](const std::string&) {
    return json_answer(200, R"({"exec_id":"0","outcome":"exited","exit_code":4,"stdout":"o","stderr":"e"})");
  });
  auto done = run_client(gateway.url(), {"exec", "-i", "--", "true"});
  EXPECT_EQ(done.exit_code, 4);
  EXPECT_EQ(done.out + done.err, "oe");
}

TEST(ExecTty, NeedsATerminal) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request); });
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"exec", "-it", "--", "sh"}, {"shell"}, {"shell", "--rm", "--image", "i"}}) {
    auto done = run_client(gateway.url(), arguments);
    EXPECT_EQ(done.exit_code, 2) << arguments[0];
    EXPECT_NE(done.err.find("stdin is no terminal"), std::string::npos) << done.err;
  }
  EXPECT_TRUE(gateway.requests().empty());
}

TEST(ExecTty, PassesKeysAndTheSizeAndRestoresTheTerminal) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request, true); });
  gateway.attached = [](FakeAttachment& one) {
    EXPECT_TRUE(one.receives(R"({"cols":200,"rows":50,"type":"resize"})"));
    one.output(1, 0, "prompt> ");
    EXPECT_TRUE(one.receives("ls\x03\r"));
    one.output(1, 8, "resize me\r\n");
    EXPECT_TRUE(one.receives(R"({"cols":90,"rows":30,"type":"resize"})"));
    one.exit(3);
  };
  Terminal terminal(on_terminal(gateway, "exec -t -- sh"));
  ASSERT_TRUE(terminal.shows("prompt> ")) << terminal.everything();
  EXPECT_TRUE(terminal.echo_is_off());
  terminal.type("ls\x03\r");
  ASSERT_TRUE(terminal.shows("resize me")) << terminal.everything();
  terminal.resize(90, 30);
  EXPECT_TRUE(terminal.shows("code=3")) << terminal.everything();
  expect_restored(terminal);
  EXPECT_EQ(body_of(gateway.requests().at(0)).at("pty"), Json({{"cols", 200}, {"rows", 50}}));
}

TEST(ExecTty, TildeDotDetaches) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request, true); });
  gateway.attached = prompt;
  Terminal terminal(on_terminal(gateway, "exec -t -- sh"));
  ASSERT_TRUE(terminal.shows("prompt> ")) << terminal.everything();
  terminal.type("~.");
  EXPECT_TRUE(terminal.shows("detached")) << terminal.everything();
  EXPECT_TRUE(terminal.shows(std::string("isogate attach ") + kId)) << terminal.everything();
  EXPECT_TRUE(terminal.shows("code=0")) << terminal.everything();
  expect_restored(terminal);
}

TEST(ExecTty, EverySignalThatEndsItRestoresTheTerminal) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGSEGV, SIGABRT}) {
    FakeGateway gateway([](const std::string& request) { return answer_to(request, true); });
    gateway.attached = prompt;
    Terminal terminal(on_terminal(gateway, "exec -t -- sh"));
    ASSERT_TRUE(terminal.shows("prompt> ")) << terminal.everything();
    const std::string shown = terminal.everything();
    ::kill(std::stoi(shown.substr(shown.find("pid=") + 4)), signal);
    EXPECT_TRUE(terminal.shows("code=")) << signal << terminal.everything();
    expect_restored(terminal);
  }
}

TEST(ExecTty, ALostConnectionRestoresTheTerminal) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request, true); });
  gateway.attached = [](FakeAttachment& one) { one.output(1, 0, "prompt> "); };
  Terminal terminal(on_terminal(gateway, "exec -t -- sh"));
  EXPECT_TRUE(terminal.shows("contact was lost")) << terminal.everything();
  EXPECT_TRUE(terminal.shows("code=125")) << terminal.everything();
  expect_restored(terminal);
}

// What a client of `attach` with these arguments sends; its stdin has "in".
std::string sent_by(const std::vector<std::string>& arguments, const std::string& standard_in,
                    std::vector<std::string>& requests) {
  std::string sent;
  FakeGateway gateway([&](const std::string& request) { return answer_to(request, false, standard_in); });
  gateway.attached = [&](FakeAttachment& one) {
    one.output(1, 0, "out");
    one.exit(5);
    while (const auto message = one.next())
      if (message->opcode != 8) sent += message->bytes;
  };
  ProgramOptions options;
  options.stdin_bytes = "in";
  auto done = run_client(gateway.url(), arguments, options);
  EXPECT_EQ(done.exit_code, 5) << done.err;
  EXPECT_EQ(done.out, "out");
  requests = gateway.requests();
  return sent;
}

TEST(Attach, ReadOnlySendsNothing) {
  std::vector<std::string> requests;
  EXPECT_EQ(sent_by({"attach", "--read-only", kId}, "open", requests), "");
  EXPECT_NE(requests.back().find("/attach?read_only=true HTTP"), std::string::npos);
}

TEST(Attach, AClosedStdinSendsNothing) {
  std::vector<std::string> requests;
  EXPECT_EQ(sent_by({"attach", kId}, "closed", requests), "");
  EXPECT_NE(requests.back().find("/attach HTTP"), std::string::npos);
}

TEST(Attach, SaysWhatIsNoLongerKept) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request); });
  gateway.attached = [](FakeAttachment& one) {
    one.output(1, 812, "rest");
    one.output(1, 816, "!");
    one.exit(0);
  };
  auto done = run_client(gateway.url(), {"attach", kId});
  EXPECT_EQ(done.out, "rest!");
  EXPECT_EQ(done.err, "isogate: 812 bytes of stdout are no longer kept\n");
}

TEST(Attach, RefusalsSayWhatToDo) {
  const std::tuple<int, const char*, const char*> refusals[] = {
      {409, "already_attached", "isogate attach --read-only"}, {404, "exec_not_found", "isogate ps"}};
  for (const auto& [status, code, advice] : refusals) {
    FakeGateway gateway([&, s = status, c = code](const std::string& request) {
      return request.find("/attach") == std::string::npos ? answer_to(request) : refusal(s, c, "no");
    });
    auto done = run_client(gateway.url(), {"attach", kId});
    EXPECT_EQ(done.exit_code, 125) << code;
    EXPECT_NE(done.err.find(advice), std::string::npos) << done.err;
  }
}

TEST(Shell, RemovesItsSandboxAfterwards) {
  const std::pair<const char*, std::string> shells[] = {{"shell --rm mine", "mine"},
                                                        {"shell --rm", "shell-"}};
  for (const auto& [arguments, agent] : shells) {
    FakeGateway gateway([](const std::string& request) { return answer_to(request, true); });
    gateway.attached = [](FakeAttachment& one) {
      one.output(1, 0, "prompt> ");
      one.exit(0);
    };
    Terminal terminal(on_terminal(gateway, arguments));
    EXPECT_TRUE(terminal.shows("code=0")) << terminal.everything();
    const Json body = body_of(gateway.requests().at(0));
    EXPECT_TRUE(body.at("agent_id").get<std::string>().starts_with(agent)) << body;
    EXPECT_EQ(body.at("command"), R"x(exec "$(command -v bash || echo sh)" -l)x");
    EXPECT_TRUE(gateway.requests().back().starts_with(
        "DELETE /sandboxes/" + body.at("agent_id").get<std::string>() + "?purge=true HTTP"));
  }
}

TEST(Shell, OneThatDidNotBeginLeavesNoSandboxOfItsOwn) {
  struct Failure {
    const char *at, *options;
    int status, removed;
  };
  const Failure failures[] = {{"POST /exec ", "", 400, 200},
                              {"POST /exec ", "--image i", 400, 200},
                              {"POST /exec ", "", 400, 404},
                              {"POST /exec ", "", 401, 403},
                              {"POST /exec ", "", 403, 401},
                              {"GET /execs/", "", 409, 200},
                              {"POST /sandboxes ", "--image i", 503, 404}};
  for (const Failure& failure : failures) {
    FakeGateway gateway([&](const std::string& request) {
      if (request.starts_with(failure.at)) return refusal(failure.status, "some_code", "no");
      if (request.starts_with("DELETE")) return json_answer(failure.removed, "{}");
      return answer_to(request, true);
    });
    Terminal terminal(on_terminal(gateway, std::string("shell --rm ") + failure.options));
    EXPECT_TRUE(terminal.shows("code=1")) << terminal.everything();
    EXPECT_EQ(terminal.everything().find("Its sandbox stays"), std::string::npos) << terminal.everything();
    const std::string last = gateway.requests().back();
    EXPECT_TRUE(last.starts_with("DELETE /sandboxes/shell-")) << last;
    EXPECT_NE(last.find("?purge=true"), std::string::npos) << last;
  }
}

TEST(Shell, OneThatDidNotBeginNamesTheSandboxThatStays) {
  for (const char* arguments : {"shell --rm --image i mine", "shell --rm"}) {
    FakeGateway gateway([](const std::string& request) {
      if (request.starts_with("POST /exec ")) return refusal(400, "invalid_request", "no");
      return request.starts_with("DELETE") ? refusal(503, "backend_unavailable", "no")
                                           : json_answer(200, "{}");
    });
    Terminal terminal(on_terminal(gateway, arguments));
    const std::string agent = std::string(arguments) == "shell --rm" ? "shell-" : "mine`";
    EXPECT_TRUE(terminal.shows("isogate sandbox rm --purge " + agent)) << terminal.everything();
    EXPECT_EQ(gateway.requests().back().starts_with("DELETE"), agent != "mine`");
  }
}

TEST(Shell, ADetachedOneKeepsItsSandbox) {
  FakeGateway gateway([](const std::string& request) { return answer_to(request, true); });
  gateway.attached = prompt;
  Terminal terminal(on_terminal(gateway, "shell --rm mine"));
  ASSERT_TRUE(terminal.shows("prompt> ")) << terminal.everything();
  terminal.type("~.");
  EXPECT_TRUE(terminal.shows("isogate sandbox rm --purge mine")) << terminal.everything();
  for (const std::string& request : gateway.requests())
    EXPECT_FALSE(request.starts_with("DELETE")) << request;
}

}  // namespace
}  // namespace isogate::test
