// The command line against a real gateway, from end to end.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/terminal.h"
#include "tests/support/local_gateway.h"
#include "tests/support/processes.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

class RealGateway : public OnLocalGateway {
 protected:
  static ProgramResult run(std::vector<std::string> arguments, const std::string& input = "") {
    return run_isogate(std::move(arguments), {input, gateway_->client_env()});
  }
};

TEST_F(RealGateway, ExecPassesBytesAndCode) {
  auto done = run({"exec", "-c", "printf 'a\\0\\377'; echo oops >&2; exit 7"});
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_EQ(done.out, std::string("a\0\xff", 3));
  EXPECT_EQ(done.err, "oops\n");
}

TEST_F(RealGateway, ExecWithoutAShellKeepsArgumentsUnchanged) {
  auto done = run({"exec", "--", "printf", "%s|", "a b", "$HOME", "*", ""});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "a b|$HOME|*||");
}

TEST_F(RealGateway, ExecTakesStdinEnvironmentAndDirectory) {
  ASSERT_EQ(run({"exec", "-c", "mkdir -p sub"}).exit_code, 0);
  auto done =
      run({"exec", "--stdin", "--env", "WHO=me", "--cwd", "sub", "-c", "cat; echo $WHO; basename $PWD"},
          "in\xff\n");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "in\xff\nme\nsub\n");
}

TEST_F(RealGateway, TimeoutIs124AndSignalIs128PlusN) {
  EXPECT_EQ(run({"exec", "--timeout", "0.3", "--", "sleep", "60"}).exit_code, 124);
  EXPECT_EQ(run({"exec", "-c", "kill -SEGV $$"}).exit_code, 128 + SIGSEGV);
}

TEST_F(RealGateway, AProgramThatIsNotThereIs127) {
  EXPECT_EQ(run({"exec", "--", "no-such-program"}).exit_code, 127);
}

TEST_F(RealGateway, OutputOverTheCapIsTruncatedAndReported) {
  auto done = run({"exec", "--max-output", "10", "-c", "seq 1000"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out.size(), 10u);
  EXPECT_NE(done.err.find("the output was cut"), std::string::npos) << done.err;
}

TEST_F(RealGateway, StreamGivesOutputAsItComes) {
  Program program({isogate_binary(), "exec", "--stream", "-c", "echo first; sleep 60"},
                  {.env = gateway_->client_env()});
  EXPECT_TRUE(program.wait_for_output("first\n", 20)) << program.result.err;
}

TEST_F(RealGateway, StreamEndsWithTheProgramsCode) {
  auto done = run({"exec", "--stream", "--lines", "-c", "printf 'one\\ntwo\\n'; echo err >&2; exit 9"});
  EXPECT_EQ(done.exit_code, 9);
  EXPECT_EQ(done.out, "one\ntwo\n");
  EXPECT_EQ(done.err, "err\n");
}

TEST_F(RealGateway, CtrlCKillsWhatRan) {
  const std::string mark = new_mark();
  Program program({isogate_binary(), "exec", "--stream", "-c", "echo up; sleep " + mark},
                  {.env = gateway_->client_env()});
  ASSERT_TRUE(program.wait_for_output("up\n", 20)) << program.result.err;
  program.signal(SIGINT);
  ASSERT_TRUE(program.wait(20));
  EXPECT_EQ(program.result.exit_code, 130);
  EXPECT_TRUE(gone_within(20, mark));
}

// As under nohup.
TEST_F(RealGateway, AnIgnoredSignalEndsNothing) {
  for (const std::string how : {"--stream", "-i"}) {
    Program program(
        {"sh", "-c",
         "trap '' HUP INT; exec \"$0\" exec --agent i " + how + " -c 'echo up; sleep 1; echo done'",
         isogate_binary()},
        {.env = gateway_->client_env()});
    ASSERT_TRUE(program.wait_for_output("up\n", 20)) << program.result.err;
    program.signal(SIGHUP);
    program.signal(SIGINT);
    ASSERT_TRUE(program.wait(20));
    EXPECT_EQ(program.result.exit_code, 0) << how << program.result.err;
    EXPECT_EQ(program.result.out, "up\ndone\n") << how;
  }
}

TEST_F(RealGateway, AnExecInTheBackgroundIsListedReadAndKilled) {
  auto started = run({"exec", "-d", "--agent", "bg", "-c", "echo one; echo two >&2; exec sleep 300"});
  ASSERT_EQ(started.exit_code, 0) << started.err;
  const std::string id = started.out.substr(0, started.out.find('\n'));
  ASSERT_EQ(id.size(), 32u) << started.out;
  ProgramResult logs;
  for (int i = 0; i < 500 && (logs.out.empty() || logs.err.empty()); ++i) logs = run({"logs", id});
  EXPECT_EQ(logs.out, "one\n");
  EXPECT_EQ(logs.err, "two\n");
  EXPECT_EQ(logs.exit_code, 0);
  auto listed = run({"ps", "--agent", "bg"});
  EXPECT_NE(listed.out.find("\n" + id + "  bg     running  -"), std::string::npos) << listed.out;
  EXPECT_EQ(run({"ps", "--agent", "other"}).out.find(id), std::string::npos);
  auto refused = run({"kill", "--agent", "other", id});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("is of agent `bg`, not of `other`"), std::string::npos) << refused.err;
  EXPECT_EQ(run({"logs", "--agent", "other", id}).exit_code, 1);
  EXPECT_EQ(run({"kill", "--agent", "bg", id}).out, "killed\n");
  EXPECT_NE(run({"ps"}).out.find(id + "  bg     ended  killed"), std::string::npos) << run({"ps"}).out;
  EXPECT_EQ(run({"logs", "-f", id}).out, "one\n");
  EXPECT_EQ(run({"attach", id}).exit_code, 137);
  EXPECT_EQ(run({"kill", std::string(32, '0')}).exit_code, 1);
}

TEST_F(RealGateway, InteractiveStdinGoesInWhileItRuns) {
  const std::string input = std::string(1'000'000, 'x') + "\xff\n";
  auto done = run({"exec", "-i", "-c", "cat; echo end >&2; exit 4"}, input);
  EXPECT_EQ(done.exit_code, 4) << done.err;
  EXPECT_EQ(done.out == input, true) << done.out.size();
  EXPECT_EQ(done.err, "end\n");
}

TEST_F(RealGateway, AnInterruptReachesAnInteractiveProgram) {
  Program program({isogate_binary(), "exec", "-i", "-c",
                   "trap 'echo got; exit 5' INT; echo up; while :; do sleep 0.1; done"},
                  {.env = gateway_->client_env()});
  ASSERT_TRUE(program.wait_for_output("up\n", 20)) << program.result.err;
  program.signal(SIGINT);
  ASSERT_TRUE(program.wait(20));
  EXPECT_EQ(program.result.exit_code, 5);
  EXPECT_EQ(program.result.out, "up\ngot\n");
}

TEST_F(RealGateway, AnInteractiveProgramWithoutAReaderEnds) {
  auto done = run_program(
      {"bash", "-c", isogate_binary() + " exec -i --agent piped -- yes | head -1; exit ${PIPESTATUS[0]}"},
      {.env = gateway_->client_env()});
  EXPECT_EQ(done.exit_code, 141) << done.err;
  EXPECT_EQ(done.out, "y\n");
  std::string listed;
  for (int i = 0; i < 500 && listed.find("signaled SIGPIPE") == std::string::npos; ++i)
    listed = run({"ps", "--agent", "piped"}).out;
  EXPECT_NE(listed.find("signaled SIGPIPE"), std::string::npos) << listed;
}

TEST_F(RealGateway, AShellIsAnInteractiveOneOnThisTerminal) {
  std::vector<std::string> command = {"env"};
  for (const auto& [name, value] : gateway_->client_env()) command.push_back(name + "=" + value);
  for (const std::string& word : {isogate_binary(), std::string("shell"), std::string("--rm")})
    command.push_back(word);
  Terminal terminal(command);
  terminal.type("stty size; echo $((6 * 7))-$TERM\r");
  EXPECT_TRUE(terminal.shows("50 200")) << terminal.everything();
  EXPECT_TRUE(terminal.shows("42-xterm-256color")) << terminal.everything();
  terminal.resize(90, 30);
  // Not a shell's echo: between it and its exec a shell forgets the signal.
  terminal.type("PS1=a''b; echo c\"\"d > f; tail -f f\r");
  EXPECT_TRUE(terminal.shows("cd")) << terminal.everything();
  terminal.type("\x03");
  EXPECT_TRUE(terminal.shows("ab")) << terminal.everything();
  terminal.type("stty size\r");
  EXPECT_TRUE(terminal.shows("30 90")) << terminal.everything();
  terminal.type("exit\r");
  for (int i = 0; i < 500 && run({"sandbox", "ls"}).out.find("shell-") != std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(run({"sandbox", "ls"}).out.find("shell-"), std::string::npos);
}

TEST_F(RealGateway, FilesGoInAndComeOutUnchanged) {
  TemporaryDirectory directory;
  std::string bytes;
  for (int i = 0; i < 3'000'000; ++i) bytes += static_cast<char>(i * 31 + i / 256);
  std::string source = directory.file("source", bytes);
  ASSERT_EQ(run({"write", "--mode", "0640", "deep/er/file.bin", source}).exit_code, 0);
  auto done = run({"read", "deep/er/file.bin", "-o", directory.path() + "/copy"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(read_whole(directory.path() + "/copy") == bytes, true);
  EXPECT_EQ(run({"read", "deep/er/file.bin", "--offset", "1000", "--limit", "7"}).out, bytes.substr(1000, 7));
  EXPECT_EQ(run({"read", "/workspace/deep/er/file.bin", "--limit", "3"}).out, bytes.substr(0, 3));
  EXPECT_NE(run({"ls", "--long", "deep/er"}).out.find("-0640"), std::string::npos);
}

TEST_F(RealGateway, AppendAndStdinWork) {
  ASSERT_EQ(run({"write", "log"}, "one\n").exit_code, 0);
  ASSERT_EQ(run({"write", "log", "-", "--append", "--durable"}, "two\n").exit_code, 0);
  EXPECT_EQ(run({"read", "log"}).out, "one\ntwo\n");
  const TemporaryDirectory directory;
  ASSERT_EQ(run({"write", "log", directory.file("empty", "")}).exit_code, 0);
  EXPECT_EQ(run({"exec", "-c", "stat -c %s log"}).out, "0\n");
}

TEST_F(RealGateway, LsAndRmSeeTheTree) {
  ASSERT_EQ(run({"exec", "--agent", "lister", "-c", "mkdir -p a/b; touch a/b/c d"}).exit_code, 0);
  EXPECT_EQ(run({"ls", "--agent", "lister"}).out, "a/\nd\n");
  auto tree = run({"ls", "-R", "--agent", "lister"});
  EXPECT_NE(tree.out.find("a/b/c\n"), std::string::npos) << tree.out;
  EXPECT_EQ(run({"rm", "--agent", "lister", "a"}).exit_code, 1);
  EXPECT_EQ(run({"rm", "--agent", "lister", "-r", "a"}).exit_code, 0);
  EXPECT_EQ(run({"ls", "--agent", "lister"}).out, "d\n");
}

TEST_F(RealGateway, RefusalsOfFileCallsAre1) {
  auto missing = run({"read", "not-there"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("(file_not_found)"), std::string::npos) << missing.err;
  EXPECT_EQ(run({"read", "../../etc/passwd"}).exit_code, 1);
  EXPECT_EQ(run({"write", "x/../../y"}, "z").exit_code, 1);
  EXPECT_EQ(run({"ls", "--agent", "-bad-"}).exit_code, 1);
}

TEST_F(RealGateway, AnIsolationThatCannotBeHadIsRefused) {
  auto done = run({"exec", "--min-isolation", "vm", "--", "true"});
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_NE(done.err.find("isogate: "), std::string::npos);
  EXPECT_EQ(run({"exec", "--backend", "no-such", "--", "true"}).exit_code, 125);
}

TEST_F(RealGateway, ProbeAsksIt) {
  auto done = run({"probe", "--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(Json::parse(done.out).at("backends").at(0).at("name"), "dev");
}

TEST_F(RealGateway, AWrongKeyIsRefusedAndSaysHowToGiveOne) {
  ProgramOptions options;
  options.env = {{"ISOGATE_URL", gateway_->url()}, {"ISOGATE_KEY", "wrong-key-of-mine"}};
  auto done = run_isogate({"exec", "--", "true"}, options);
  EXPECT_EQ(done.exit_code, 125);
  EXPECT_NE(done.err.find("--key-file"), std::string::npos) << done.err;
  EXPECT_EQ(done.err.find("wrong-key-of-mine"), std::string::npos);
  EXPECT_EQ(gateway_->log().find("wrong-key-of-mine"), std::string::npos);
}

TEST_F(RealGateway, IsFoundByItsSocketWithoutAKey) {
  ProgramOptions options;
  options.env = {{"ISOGATE_URL", ""}, {"ISOGATE_KEY", ""}, {"ISOGATE_STATE_DIR", gateway_->state_dir()}};
  auto done = run_isogate({"exec", "--", "echo", "found"}, options);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out, "found\n");
}

TEST_F(RealGateway, TheKeyIsInNoProcessListOrLog) {
  std::string key = gateway_->key();
  ASSERT_GE(key.size(), 20u);
  EXPECT_EQ(run({"exec", "--", "true"}).exit_code, 0);
  EXPECT_EQ(run_program({"ps", "axww", "-o", "args"}).out.find(key), std::string::npos);
  EXPECT_EQ(gateway_->log().find(key), std::string::npos);
}

TEST_F(RealGateway, ServesItsOpenapiDocument) {
  auto answer = gateway_->get("/openapi.json");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Json::parse(answer.body), Json::parse(read_whole(ISOGATE_SOURCE_DIR "/docs/openapi.json")));
}

TEST(Serve, FlagsWork) {
  if (!local_is_built()) GTEST_SKIP() << "the plugin local is not built";
  GatewayOptions options;
  options.yaml = "backends: [{name: one, plugin: local}, {name: two, plugin: local}]\n";
  options.arguments = {
      "--allow-unisolated", "--backend", "two", "--multi-agent", "--shell", "/bin/sh", "--port", "0",
      "--log-level",        "debug"};
  Gateway gateway(options);
  auto report = Json::parse(gateway.get("/backends").body);
  ASSERT_EQ(report.at("backends").size(), 1u);
  EXPECT_EQ(report.at("backends").at(0).at("name"), "two");
  EXPECT_EQ(gateway.post("/exec", R"({"command":"true"})").status, 400);
  auto done = gateway.post("/exec", R"({"command":"echo $0","agent_id":"a"})");
  EXPECT_EQ(Json::parse(done.body).at("stdout"), "/bin/sh\n") << done.body;
}

TEST(Serve, ListenMayBeRepeated) {
  if (!local_is_built()) GTEST_SKIP() << "the plugin local is not built";
  TemporaryDirectory directory;
  GatewayOptions options;
  options.yaml = "allow_unisolated: true\nbackends: [{name: dev, plugin: local}]\n";
  std::string socket = directory.path() + "/other.sock";
  options.arguments = {"--listen", "127.0.0.1:0", "--listen", "unix:" + socket};
  Gateway gateway(options);
  EXPECT_EQ(http_call("unix:" + socket, "GET", "/readyz").status, 200);
}

TEST_F(RealGateway, SandboxesAreListedAndEnded) {
  ASSERT_EQ(run({"exec", "--agent", "sb-1", "-c", "echo kept > f; setsid sleep 60 &"}).exit_code, 0);
  ASSERT_EQ(run({"exec", "--agent", "sb-2", "-c", "true"}).exit_code, 0);
  auto listed = run({"sandbox", "ls"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_EQ(listed.out.rfind("AGENT", 0), 0u) << listed.out;
  EXPECT_LT(listed.out.find("\nsb-2 "), listed.out.find("\nsb-1 ")) << "the last used first: " << listed.out;
  EXPECT_EQ(Json::parse(run({"sandbox", "ls", "--json"}).out).at("sandboxes").at(0).at("backend"), "dev");
  EXPECT_EQ(run({"sandbox", "rm", "sb-1"}).exit_code, 0);
  EXPECT_EQ(run({"exec", "--agent", "sb-1", "-c", "cat f"}).out, "kept\n") << "the workspace stays";
  EXPECT_EQ(run({"sandbox", "rm", "--purge", "sb-1"}).exit_code, 0);
  EXPECT_EQ(run({"sandbox", "ls"}).out.find("\nsb-1 "), std::string::npos);
  auto none = run({"sandbox", "rm", "--purge", "sb-1", "sb-2"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("agent `sb-1` has no sandbox"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("isogate sandbox ls"), std::string::npos) << none.err;
  EXPECT_EQ(run({"sandbox", "ls"}).out.find("\nsb-2 "), std::string::npos) << "the second was not reached";
}

}  // namespace
}  // namespace isogate::test
