#include <regex>

#include "tests/contract/contract.h"

namespace isogate::test {
namespace {

void command_runs_under_the_shell(World& w) {
  const Json result = w.me.run("echo hello; echo oops >&2; exit 3");
  EXPECT_EQ(result.at("outcome"), "exited");
  EXPECT_EQ(result.at("exit_code"), 3);
  EXPECT_TRUE(result.at("signal").is_null());
  EXPECT_EQ(result.at("stdout"), "hello\n");
  EXPECT_EQ(result.at("stderr"), "oops\n");
  EXPECT_EQ(result.at("stdout_encoding"), "utf-8");
  EXPECT_EQ(result.at("stderr_encoding"), "utf-8");
  EXPECT_EQ(result.at("stdout_bytes"), 6);
  EXPECT_EQ(result.at("stderr_bytes"), 5);
  EXPECT_EQ(result.at("truncated"), false);
  EXPECT_EQ(result.at("artifacts"), Json::array());
  EXPECT_TRUE(std::regex_match(result.at("exec_id").get<std::string>(), std::regex("[0-9a-f]{32}")));
  EXPECT_GE(result.at("duration_ms").get<double>(), 0);
  EXPECT_GE(result.at("cpu_ms").get<double>(), 0);
  EXPECT_GE(result.at("max_rss_bytes").get<double>(), 0);
  EXPECT_EQ(result.size(), 17u) << "other fields than the contract's: " << result;
}

void every_result_names_backend_and_isolation(World& w) {
  const Json result = w.me.run("true");
  EXPECT_EQ(result.at("backend"), w.backend);
  EXPECT_EQ(result.at("isolation"), w.isolation);
}

void argv_is_passed_without_a_shell(World& w) {
  const Json result = w.me.run_argv({"printf", "%s|", "$HOME", "a b", "*", "`id`", "", "-n", "~"});
  EXPECT_EQ(bytes_of(result, "stdout"), "$HOME|a b|*|`id`||-n|~|");
}

void argv_is_exact_to_the_byte(World& w) {
  const std::string large(100000, 'x');
  const Json result = w.me.run_argv(
      {"/bin/sh", "-c", "printf '%s\\0' \"$@\"", "name", "line\nline", "tab\t\"'\\", "é€😀", large});
  std::string wanted;
  for (const std::string& each :
       {std::string("line\nline"), std::string("tab\t\"'\\"), std::string("é€😀"), large})
    wanted += each + std::string(1, '\0');
  EXPECT_TRUE(bytes_of(result, "stdout") == wanted) << bytes_of(result, "stdout").substr(0, 100);
}

void environment_is_what_was_given_and_six_more(World& w) {
  const Json result =
      w.me.run_argv({"env", "-0"}, {{"env", {{"ONE", "1"}, {"EMPTY", ""}, {"LINES", "a\nb=c"}}}});
  std::map<std::string, std::string> found;
  const std::string text = bytes_of(result, "stdout");
  for (size_t at = 0; at < text.size();) {
    const std::string entry = text.substr(at, text.find('\0', at) - at);
    at += entry.size() + 1;
    found[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
  }
  EXPECT_EQ(found["ONE"], "1");
  EXPECT_EQ(found["EMPTY"], "");
  EXPECT_EQ(found["LINES"], "a\nb=c");
  for (const char* name : {"ONE", "EMPTY", "LINES"}) found.erase(name);
  for (const char* name : {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "WORKSPACE"})
    EXPECT_EQ(found.erase(name), 1u) << name << " is not set";
  EXPECT_TRUE(found.empty()) << "from where is " << (found.empty() ? "" : found.begin()->first);
}

void a_request_s_variable_wins_over_what_is_added(World& w) {
  const Json result = w.me.run("echo $HOME $PATH", {{"env", {{"HOME", "/mine"}, {"PATH", "/usr/bin:/bin"}}}});
  EXPECT_EQ(result.at("stdout"), "/mine /usr/bin:/bin\n");
}

void the_workspace_is_the_cwd_and_in_the_environment(World& w) {
  EXPECT_EQ(
      w.me.out("[ \"$(pwd -P)\" = \"$(cd \"$WORKSPACE\" && pwd -P)\" ] && touch here && ls \"$WORKSPACE\""),
      "here\n");
  EXPECT_EQ(w.me.content("here"), "");
}

void cwd_is_relative_to_the_workspace(World& w) {
  w.me.run("mkdir -p sub/deep");
  for (const char* cwd : {"sub/deep", "./sub//deep", "/workspace/sub/deep", "sub/deep/"})
    EXPECT_EQ(
        w.me.run("touch mark && cd - >/dev/null 2>&1; ls $WORKSPACE/sub/deep", {{"cwd", cwd}}).at("stdout"),
        "mark\n")
        << cwd;
}

void a_cwd_that_cannot_be_is_refused(World& w) {
  w.me.run("touch file; ln -s /tmp out; ln -s nowhere dangling");
  for (const char* cwd : {"absent", "file", "../", "a/../..", "out", "dangling"}) {
    const Answer answer = w.me.exec("touch ran", {{"cwd", cwd}});
    EXPECT_TRUE(refused(answer, 400, "invalid_request")) << cwd;
    EXPECT_NE(answer.text.find("`" + std::string(cwd) + "`"), std::string::npos) << answer.text;
  }
  EXPECT_TRUE(refused(w.me.read("ran"), 404, "file_not_found"));
}

void stdin_is_what_was_sent_and_then_ends(World& w) {
  EXPECT_EQ(w.me.run("cat", {{"stdin", "line\nlast"}}).at("stdout"), "line\nlast");
  const std::string raw("\0\xff\xfe\n\0", 5);
  const Json echoed = w.me.run("cat", {{"stdin", base64(raw)}, {"stdin_encoding", "base64"}});
  EXPECT_EQ(bytes_of(echoed, "stdout"), raw);
  EXPECT_EQ(w.me.run("wc -c").at("stdout"), "0\n") << "no stdin is an empty one";
  EXPECT_EQ(w.me.run("wc -c", {{"stdin", std::string(3 << 20, 's')}}).at("stdout"), "3145728\n");
}

void stdin_that_nobody_reads_holds_nothing(World& w) {
  const Json result = w.me.run("exit 4", {{"stdin", std::string(3 << 20, 's')}, {"timeout_sec", 20}});
  EXPECT_EQ(result.at("exit_code"), 4);
}

void bad_stdin_is_refused(World& w) {
  EXPECT_TRUE(
      refused(w.me.exec("true", {{"stdin", "!"}, {"stdin_encoding", "base64"}}), 400, "invalid_request"));
  EXPECT_TRUE(
      refused(w.me.exec("true", {{"stdin", "x"}, {"stdin_encoding", "rot13"}}), 400, "invalid_request"));
}

void only_the_three_streams_are_open(World& w) {
  EXPECT_EQ(w.me.out("for fd in /proc/self/fd/*; do [ -e $fd ] && echo ${fd##*/}; done | grep -vE "
                     "'^(0|1|2|255)$' | head -c 200"),
            "");
}

void a_user_that_was_not_admitted_is_refused(World& w) {
  const bool can = w.can("user");
  for (const char* user : {"root", "0", "-1", "4294967295", "nobody", "65534", "../x"}) {
    const Answer answer = w.me.exec("touch ran", {{"user", user}});
    EXPECT_TRUE(refused(answer, can ? 403 : 501, can ? "permission_denied" : "unsupported")) << user;
  }
  EXPECT_TRUE(refused(w.me.read("ran"), 404, "file_not_found"));
}

void new_files_of_an_exec_are_its_artifacts(World& w) {
  w.me.run("mkdir -p out/sub; echo old > out/old; echo before > out/changed");
  const Json result = w.me.run(
      "sleep 0.02; echo abc > out/new.txt; echo {} > out/sub/x.json; echo no > aside; echo longer > "
      "out/changed",
      {{"artifact_dir", "out"}});
  std::map<std::string, Json> found;
  for (const Json& artifact : result.at("artifacts")) found[artifact.at("path")] = artifact;
  ASSERT_TRUE(found.count("out/new.txt") == 1 && found.count("out/sub/x.json") == 1) << result;
  EXPECT_EQ(found["out/new.txt"].at("size"), 4);
  EXPECT_EQ(found["out/new.txt"].at("mime_type"), "text/plain");
  EXPECT_EQ(found["out/sub/x.json"].at("mime_type"), "application/json");
  EXPECT_EQ(found.count("out/old") + found.count("aside"), 0u) << result;
}

void an_artifact_directory_may_appear_during_the_exec(World& w) {
  const Json result = w.me.run("mkdir later; echo x > later/file", {{"artifact_dir", "later"}});
  ASSERT_EQ(result.at("artifacts").size(), 1u) << result;
  EXPECT_EQ(result.at("artifacts")[0].at("path"), "later/file");
  EXPECT_EQ(w.me.run("true", {{"artifact_dir", "never"}}).at("artifacts"), Json::array());
}

void artifacts_are_named_without_detours(World& w) {
  const Json result = w.me.run("mkdir -p dir; echo x > dir/file", {{"artifact_dir", ".//./dir/."}});
  ASSERT_EQ(result.at("artifacts").size(), 1u) << result;
  EXPECT_EQ(result.at("artifacts")[0].at("path"), "dir/file");
}

void artifacts_that_cannot_be_listed_are_not_none(World& w) {
  const Json none = w.me.run("true", {{"artifact_dir", "place"}});
  EXPECT_EQ(none.count("reason"), 0u) << none;
  const Json result = w.me.run("ln -s place place", {{"artifact_dir", "place"}});
  EXPECT_EQ(result.at("exit_code"), 0);
  EXPECT_EQ(result.at("artifacts"), Json::array());
  EXPECT_NE(result.value("reason", "").find("artifacts could not be listed"), std::string::npos) << result;
}

void artifacts_beyond_the_limit_are_said_to_be_missing(World& w) {
  HttpConnection connection(w.gateway.url());
  const Json body = {{"command", "mkdir many; cd many; seq 100001 | xargs touch"},
                     {"agent_id", w.me.agent()},
                     {"artifact_dir", "many"},
                     {"timeout_sec", 110}};
  // Not parsed: that would take longer than everything else.
  const std::string answer = connection.request("POST", "/exec", w.me.headers(), body.dump()).body;
  size_t artifacts = 0;
  for (size_t at = 0; (at = answer.find("\"path\":", at)) != std::string::npos; ++at) ++artifacts;
  EXPECT_EQ(artifacts, 100000u);
  EXPECT_NE(answer.find("\"exit_code\":0"), std::string::npos) << answer.substr(0, 1000);
  EXPECT_NE(answer.find("not all of its artifacts are listed"), std::string::npos);
}

void an_artifact_directory_outside_is_never_listed(World& w) {
  w.me.run("ln -s /etc out");
  for (const char* outside : {"../", "out", "/etc"}) {
    const Answer answer = w.me.exec("true", {{"artifact_dir", outside}});
    if (answer.status == 200)
      EXPECT_EQ(answer.body.at("artifacts"), Json::array()) << outside;
    else
      EXPECT_TRUE(answer.status == 400 || answer.status == 403) << outside << " " << answer.text;
  }
}

void what_a_program_makes_the_next_one_finds(World& w) {
  w.me.run("umask 022; echo kept > state; mkdir d; ln -s state link");
  EXPECT_EQ(w.me.out("cat link; ls -d d"), "kept\nd\n");
}

// whoami and getpwuid(3).
void a_program_finds_the_name_of_its_user(World& w) {
  EXPECT_EQ(w.me.out("echo $USER"), w.me.out("echo $LOGNAME"));
  if (w.isolation == "none") {
    const Json own = w.me.run("id -un");
    EXPECT_EQ(w.me.out("echo $USER"), own.at("exit_code") == 0 ? own.at("stdout") : "agent\n")
        << "the host's users are not changed: only the environment has a name for one that has none";
    return;
  }
  if (w.locality == "cluster") return;  // the image of a pod has the name or has it not
  const std::string name = w.me.out("echo $USER");
  EXPECT_EQ(w.me.out("whoami; id -un"), name + name);
  EXPECT_NE(w.me.out("id -gn"), "");
  EXPECT_EQ(w.me.out("cut -d: -f1,3 /etc/passwd | grep -c \"^root:0$\""), "1\n") << "root has its name, too";
  EXPECT_NE(w.me.run("echo x:x:1:1::/: >> /etc/passwd").at("exit_code"), 0);
}

const Case kExecCases[] = {
    {"command_runs_under_the_shell", 3, command_runs_under_the_shell},
    {"every_result_names_backend_and_isolation", 8, every_result_names_backend_and_isolation},
    {"argv_is_passed_without_a_shell", 3, argv_is_passed_without_a_shell},
    {"argv_is_exact_to_the_byte", 4, argv_is_exact_to_the_byte},
    {"environment_is_what_was_given_and_six_more", 8, environment_is_what_was_given_and_six_more},
    {"a_request_s_variable_wins_over_what_is_added", 3, a_request_s_variable_wins_over_what_is_added},
    {"the_workspace_is_the_cwd_and_in_the_environment", 5, the_workspace_is_the_cwd_and_in_the_environment},
    {"cwd_is_relative_to_the_workspace", 5, cwd_is_relative_to_the_workspace},
    {"a_cwd_that_cannot_be_is_refused", 9, a_cwd_that_cannot_be_is_refused},
    {"stdin_is_what_was_sent_and_then_ends", 4, stdin_is_what_was_sent_and_then_ends},
    {"stdin_that_nobody_reads_holds_nothing", 2, stdin_that_nobody_reads_holds_nothing},
    {"bad_stdin_is_refused", 9, bad_stdin_is_refused},
    {"only_the_three_streams_are_open", 8, only_the_three_streams_are_open},
    {"a_user_that_was_not_admitted_is_refused", 9, a_user_that_was_not_admitted_is_refused},
    {"new_files_of_an_exec_are_its_artifacts", 5, new_files_of_an_exec_are_its_artifacts},
    {"an_artifact_directory_may_appear_during_the_exec", 5, an_artifact_directory_may_appear_during_the_exec},
    {"artifacts_are_named_without_detours", 5, artifacts_are_named_without_detours},
    {"artifacts_that_cannot_be_listed_are_not_none", 5, artifacts_that_cannot_be_listed_are_not_none},
    {"artifacts_beyond_the_limit_are_said_to_be_missing", 5,
     artifacts_beyond_the_limit_are_said_to_be_missing},
    {"an_artifact_directory_outside_is_never_listed", 5, an_artifact_directory_outside_is_never_listed},
    {"a_program_finds_the_name_of_its_user", 3, a_program_finds_the_name_of_its_user},
    {"what_a_program_makes_the_next_one_finds", 5, what_a_program_makes_the_next_one_finds},
};

}  // namespace

std::span<const Case> exec_cases() { return kExecCases; }

}  // namespace isogate::test
