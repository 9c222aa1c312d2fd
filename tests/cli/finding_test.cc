// How a command finds its gateway and its key, and where a key never goes.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/cli/fake_gateway.h"

namespace isogate::test {
namespace {

FakeGateway::Answer fine() {
  return [](const std::string&) { return json_answer(200, R"({"entries":[],"truncated":false})"); };
}

ProgramResult run_with(const std::vector<std::pair<std::string, std::string>>& env,
                       std::vector<std::string> arguments) {
  ProgramOptions options;
  options.env = {{"ISOGATE_URL", ""}, {"ISOGATE_KEY", ""}, {"ISOGATE_STATE_DIR", ""}};
  options.env.insert(options.env.end(), env.begin(), env.end());
  return run_isogate(std::move(arguments), options);
}

bool carries(const std::string& request, const std::string& key) {
  return request.find("Authorization: Bearer " + key + "\r\n") != std::string::npos;
}

TEST(Finding, TheSocketOfTheStateDirectoryIsPreferred) {
  TemporaryDirectory state;
  FakeGateway gateway(fine(), state.path() + "/isogate.sock");
  EXPECT_EQ(run_with({}, {"ls", "--state-dir", state.path()}).exit_code, 0);
  EXPECT_EQ(run_with({{"ISOGATE_STATE_DIR", state.path()}}, {"ls"}).exit_code, 0);
  EXPECT_EQ(gateway.requests().size(), 2u);
}

TEST(Finding, TheUrlOptionBeatsTheEnvironment) {
  FakeGateway one(fine()), other(fine());
  EXPECT_EQ(run_with({{"ISOGATE_URL", one.url()}}, {"ls", "--url", other.url()}).exit_code, 0);
  EXPECT_EQ(one.requests().size(), 0u);
  EXPECT_EQ(other.requests().size(), 1u);
}

TEST(Finding, LocalKeyIsFoundByItself) {
  TemporaryDirectory state;
  state.file("local.key", "local-one\n", 0600);
  FakeGateway gateway(fine());
  EXPECT_EQ(run_with({{"ISOGATE_URL", gateway.url()}}, {"ls", "--state-dir", state.path()}).exit_code, 0);
  EXPECT_TRUE(carries(gateway.requests().at(0), "local-one"));
}

TEST(Finding, LocalKeyIsNotSentOverTheSocketWhichNeedsNone) {
  TemporaryDirectory state;
  state.file("local.key", "local-one\n", 0600);
  FakeGateway gateway(fine(), state.path() + "/isogate.sock");
  EXPECT_EQ(run_with({}, {"ls", "--state-dir", state.path()}).exit_code, 0);
  EXPECT_EQ(run_with({{"ISOGATE_KEY", "env-one"}}, {"ls", "--state-dir", state.path()}).exit_code, 0);
  EXPECT_EQ(gateway.requests().at(0).find("Authorization"), std::string::npos);
  EXPECT_TRUE(carries(gateway.requests().at(1), "env-one")) << "a key that was named is sent";
}

TEST(Finding, ANamedKeyThatTheSocketRefusesIsReportedAsNeedless) {
  TemporaryDirectory state;
  FakeGateway gateway([](const std::string&) { return refusal(401, "unauthenticated", "no"); },
                      state.path() + "/isogate.sock");
  auto named = run_with({{"ISOGATE_KEY", "env-one"}}, {"ls", "--state-dir", state.path()});
  EXPECT_NE(named.err.find("need no key: unset ISOGATE_KEY"), std::string::npos) << named.err;
  auto without = run_with({}, {"ls", "--state-dir", state.path()});
  EXPECT_EQ(without.err.find("need no key"), std::string::npos) << without.err;
}

TEST(Finding, KeyFileBeatsTheEnvironmentWhichBeatsLocalKey) {
  TemporaryDirectory state;
  state.file("local.key", "local-one\n", 0600);
  std::string file = state.file("k", "file-one\r\n", 0600);
  FakeGateway gateway(fine());
  run_with({{"ISOGATE_URL", gateway.url()}, {"ISOGATE_KEY", "env-one"}}, {"ls", "--state-dir", state.path()});
  run_with({{"ISOGATE_URL", gateway.url()}, {"ISOGATE_KEY", "env-one"}},
           {"ls", "--key-file", file, "--state-dir", state.path()});
  EXPECT_TRUE(carries(gateway.requests().at(0), "env-one"));
  EXPECT_TRUE(carries(gateway.requests().at(1), "file-one"));
}

TEST(Finding, LocalKeyIsNotSentToAnotherMachine) {
  TemporaryDirectory state;
  state.file("local.key", "local-one\n", 0600);
  FakeGateway gateway(fine());
  std::string port = gateway.url().substr(gateway.url().rfind(':'));
  // 0.0.0.0 reaches loopback here, and is not a loopback address.
  EXPECT_EQ(
      run_with({{"ISOGATE_URL", "http://0.0.0.0" + port}}, {"ls", "--state-dir", state.path()}).exit_code, 0);
  EXPECT_EQ(gateway.requests().at(0).find("Authorization"), std::string::npos);
}

TEST(Finding, AKeyThatCouldBreakTheHeaderIsRefused) {
  FakeGateway gateway(fine());
  for (const char* key : {"a b", "a\tb", "a\r\nX-Evil: 1", "gr\xc3\xbcn"}) {
    auto done = run_with({{"ISOGATE_URL", gateway.url()}, {"ISOGATE_KEY", key}}, {"ls"});
    EXPECT_EQ(done.exit_code, 2) << key;
    EXPECT_EQ(done.err.find(key), std::string::npos) << "a key in an error message";
  }
  EXPECT_TRUE(gateway.requests().empty());
}

TEST(Finding, AMissingKeyFileIsAnError) {
  FakeGateway gateway(fine());
  auto done = run_with({{"ISOGATE_URL", gateway.url()}}, {"ls", "--key-file", "/nonexistent/k"});
  EXPECT_NE(done.exit_code, 0);
  EXPECT_NE(done.err.find("/nonexistent/k"), std::string::npos);
  EXPECT_TRUE(gateway.requests().empty());
}

TEST(Finding, ABadUrlIsAUsageError) {
  auto done = run_with({}, {"ls", "--url", "ftp://x"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_NE(done.err.find("http://HOST:PORT"), std::string::npos);
}

TEST(Finding, ANamedStateDirectoryIsTheOnlyPlaceLookedAt) {
  TemporaryDirectory state;
  const std::string socket = state.path() + "/isogate.sock";
  for (const char* command : {"probe", "ls"}) {
    for (const auto& done : {run_with({}, {command, "--state-dir", state.path()}),
                             run_with({{"ISOGATE_STATE_DIR", state.path()}}, {command})}) {
      EXPECT_EQ(done.exit_code, 125) << command << done.out;
      EXPECT_EQ(done.out, "");
      EXPECT_NE(done.err.find("`" + socket + "`: No such file or directory"), std::string::npos) << done.err;
      EXPECT_EQ(done.err.find("9090"), std::string::npos) << done.err;
    }
  }
  state.file("isogate.sock", "no socket");
  EXPECT_NE(run_with({}, {"probe", "--state-dir", state.path()}).err.find("Connection refused"),
            std::string::npos);
}

TEST(Finding, NothingNamedAndNothingThereIsThisHostByItsDefaults) {
  if (::access("/var/lib/isogate", F_OK) == 0 && ::geteuid() == 0)
    GTEST_SKIP() << "there is a state directory";
  TemporaryDirectory home;
  auto done = run_with({{"HOME", home.path()}, {"XDG_STATE_HOME", home.path()}}, {"probe"});
  EXPECT_EQ(done.out.find("no gateway and no state directory here: this host, by the default settings\n"), 0u)
      << done.out;
}

TEST(Finding, NoOptionTakesAKey) {
  for (const char* command : {"exec", "read", "write", "ls", "rm", "probe"})
    EXPECT_EQ(run_isogate({command, "--help"}).out.find("--key "), std::string::npos) << command;
}

TEST(Finding, AKeyIsInNoAnswerTheCommandPrints) {
  for (const char* code : {"unauthenticated", "permission_denied", "internal"}) {
    FakeGateway gateway([&](const std::string&) { return refusal(401, code, "no"); });
    auto done = run_with({{"ISOGATE_URL", gateway.url()}, {"ISOGATE_KEY", "very-secret-key"}},
                         {"exec", "--", "true"});
    EXPECT_EQ((done.out + done.err).find("very-secret-key"), std::string::npos);
  }
}

}  // namespace
}  // namespace isogate::test
