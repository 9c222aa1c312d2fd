#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "gateway/front/api/execs.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/exec/artifacts.h"
#include "gateway/front/exec/exec.h"
#include "lib/redact.h"

namespace isogate::front {
namespace {

TEST(ExecSpec, CountsEachTextThatARequestCanMakeLong) {
  const std::string text(100000, 'x');
  const auto bytes = [](const auto& fill) {
    ExecSpec spec;
    fill(spec);
    return spec.bytes();
  };
  EXPECT_EQ(ExecSpec().bytes(), 0u);
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.call.argv = {text}; }), text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.call.env = {{text, text}}; }), 2 * text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.call.cwd = text; }), text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.call.user = text; }), text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.artifact_dir = text; }), text.size());
  EXPECT_GE(bytes([&](ExecSpec& spec) { spec.stdin_bytes = std::make_shared<const std::string>(text); }),
            text.size());
}

ParsedExec parsed(const char* body) {
  ExecConfig rules;
  rules.env = {{"LANG", "C"}, {"AGENT_ID", "configured"}};
  nlohmann::json json = nlohmann::json::parse(body);
  return parse_exec(json, rules, "/bin/sh");
}

TEST(ParseExec, TakesDefaultsFromTheConfiguration) {
  const ParsedExec exec = parsed(R"({"command":"make","stdin":"in"})");
  EXPECT_EQ(exec.spec.call.argv, (std::vector<std::string>{"/bin/sh", "-c", "make"}));
  EXPECT_EQ(exec.spec.timeout_sec, ExecConfig().timeout_sec);
  EXPECT_EQ(exec.spec.call.env.size(), 2u);
  EXPECT_EQ(exec.stdin_text, "in");
  EXPECT_EQ(exec.agent_in_body, std::nullopt);
  EXPECT_EQ(exec.agent_in_env, "configured");
  EXPECT_EQ(exec.max_output_bytes, std::nullopt);
}

TEST(ParseExec, LetsTheRequestOverrideAVariable) {
  const ParsedExec exec = parsed(R"({"argv":["ls"],"env":{"AGENT_ID":"bob"},"agent_id":"bob"})");
  EXPECT_EQ(exec.spec.call.env.size(), 2u);
  EXPECT_EQ(exec.agent_in_env, "bob");
  EXPECT_EQ(exec.agent_in_body, "bob");
}

TEST(ParseExec, RefusesWhatCannotRun) {
  for (const char* body : {R"({})",
                           R"({"command":"a","argv":["a"]})",
                           R"({"command":""})",
                           R"({"argv":[]})",
                           R"({"argv":[""]})",
                           R"({"argv":[1]})",
                           R"({"command":"a","timeout_sec":0})",
                           R"({"command":"a","timeout_sec":1e9})",
                           R"({"command":"a","env":{"A=B":"c"}})",
                           R"({"command":"a","cgroup":{"cpus":1}})",
                           R"({"command":"a","min_isolation":"strong"})",
                           R"({"command":"a","stdin_encoding":"utf-16"})",
                           R"({"command":"a","max_output_bytes":1e12})",
                           R"({"command":"a","background":1})",
                           R"({"command":"a","wait_sec":-1})",
                           R"({"command":"a","wait_sec":1e9})",
                           R"({"command":"a","stdin_open":true})",
                           R"({"command":"a","pty":{}})",
                           R"({"command":"a","background":true,"pty":true})",
                           R"({"command":"a","background":true,"pty":{"cols":0}})",
                           R"({"command":"a","background":true,"pty":{"cols":80,"lines":24}})",
                           R"({"command":"a","background":true,"timeout_sec":1e9})"})
    EXPECT_THROW(parsed(body), ApiError) << body;
}

TEST(ParseExec, GivesALongLivedExecItsOwnTimeout) {
  for (const char* body : {R"({"command":"a","background":true})", R"({"command":"a","wait_sec":0})"}) {
    const ParsedExec exec = parsed(body);
    EXPECT_TRUE(exec.long_lived) << body;
    EXPECT_EQ(exec.spec.timeout_sec, ExecConfig().max_background_sec) << body;
  }
  EXPECT_EQ(parsed(R"({"command":"a","wait_sec":2.5})").wait_sec, 2.5);
  const ParsedExec any = parsed(R"({"command":"a","background":false})");
  EXPECT_FALSE(any.long_lived);
  EXPECT_EQ(any.spec.timeout_sec, ExecConfig().timeout_sec);
}

std::string term_of(const ParsedExec& exec) {
  std::string found;
  for (const auto& [name, value] : exec.spec.call.env)
    if (name == "TERM") found += (found.empty() ? "" : ",") + value;
  return found;
}

TEST(ParseExec, NamesTheLongestTimeThatItAdmits) {
  ExecConfig rules;
  rules.max_timeout_sec = 3600;
  for (const auto& [body, limit] :
       {std::pair(R"({"command":"a","timeout_sec":3601})", 3600.0),
        std::pair(R"({"command":"a","timeout_sec":1e9,"background":true})", 86400.0)}) {
    nlohmann::json json = nlohmann::json::parse(body);
    try {
      (void)parse_exec(json, rules, "/bin/sh");
      ADD_FAILURE() << body;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.code, Code::kInvalidRequest);
      EXPECT_EQ(nlohmann::json::parse(error.details_json).at("limit_sec").get<double>(), limit) << body;
    }
  }
}

TEST(ParseExec, GivesATerminalItsSizeAndName) {
  const ParsedExec exec = parsed(R"({"command":"a","background":true,"pty":{"cols":120,"rows":40}})");
  EXPECT_TRUE(exec.spec.terms.pty);
  EXPECT_TRUE(exec.spec.terms.stdin_open);
  EXPECT_EQ(exec.spec.call.cols, 120);
  EXPECT_EQ(exec.spec.call.rows, 40);
  EXPECT_EQ(exec.spec.call.flags & ISOGATE_EXEC_PTY, ISOGATE_EXEC_PTY);
  EXPECT_EQ(term_of(exec), "xterm-256color");
  const ParsedExec dumb = parsed(R"({"command":"a","background":true,"pty":{},"env":{"TERM":"dumb"}})");
  EXPECT_EQ(dumb.spec.call.cols, 80);
  EXPECT_EQ(dumb.spec.call.rows, 24);
  EXPECT_EQ(term_of(dumb), "dumb");
  EXPECT_EQ(term_of(parsed(R"({"command":"a","background":true})")), "");
}

std::string shown(std::vector<std::string> arguments) { return journal_text(arguments); }

TEST(JournalText, IsTheCommandShortAndPrintable) {
  EXPECT_EQ(shown({"make -j2 test"}), "make -j2 test");
  EXPECT_EQ(shown({"ls", "-l", "a b"}), "ls -l a b");
  EXPECT_EQ(shown({"a\nb"}).find('\n'), std::string::npos);
  EXPECT_LE(shown({std::string(5000, 'x')}).size(), 210u);
  EXPECT_LE(shown(std::vector<std::string>(5000, "xyz")).size(), 210u);
}

TEST(JournalText, HoldsNoSecret) {
  const std::string token = "ghp_" + std::string(30, 'S') + "1234567", own = "registered SECRET-value 99";
  ASSERT_TRUE(register_secret(own));
  const std::vector<std::vector<std::string>> rows = {
      {"git clone https://user:SECRET@example.com/x"},
      {"curl -H 'Authorization: Bearer SECRET0123456789' http://x"},
      {"API_TOKEN=SECRET make"},
      {"curl", "-H", "Authorization: Bearer SECRET0123456789", "http://x"},
      {"tool", "--token", "SECRET"},
      {"tool", "--password", "two SECRET words"},
      {"tool", "--password=two SECRET words", "more"},
      {"env", "DB_PASSWORD=two SECRET words", "make"},
      {"echo " + own},
      {"echo", own},
      {"push " + token},
  };
  for (const auto& row : rows) {
    const std::string text = shown(row);
    EXPECT_EQ(text.find("SECRET"), std::string::npos) << text;
    EXPECT_NE(text.find("[redacted:"), std::string::npos) << text;
    EXPECT_EQ(text.find("SSSS"), std::string::npos) << text;
  }
  EXPECT_EQ(shown({"tool", "--token", "SECRET", "--fast"}), "tool --token [redacted:assignment] --fast");
}

// Half a secret has no shape: it must be found before the text is cut.
TEST(JournalText, HoldsNoHalfOfASecretWhereItIsCut) {
  const std::string token = "ghp_" + std::string(30, 'S') + "1234567";
  for (size_t before = 150; before < 210; ++before) {
    for (const auto& row : {std::vector<std::string>{std::string(before, '.') + " " + token},
                            std::vector<std::string>{std::string(before, '.'), token}})
      EXPECT_EQ(shown(row).find("SS"), std::string::npos) << shown(row);
  }
}

TEST(ArtifactPrefix, HasNoDetours) {
  for (const char* here : {"", ".", "./", "././/.", "./././"}) EXPECT_EQ(artifact_prefix(here), "") << here;
  for (const char* out : {"out", "out/", "./out", "out//.", ".//out/./"})
    EXPECT_EQ(artifact_prefix(out), "out/") << out;
  EXPECT_EQ(artifact_prefix("a/.b/..c"), "a/.b/..c/");
  EXPECT_EQ(artifact_prefix("/workspace/./out/"), "/workspace/out/");
  EXPECT_EQ(artifact_prefix("/"), "/");
}

}  // namespace
}  // namespace isogate::front
