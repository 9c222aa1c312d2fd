#include <gtest/gtest.h>

#include "gateway/cli/declare.h"
#include "tests/support/program.h"

namespace isogate::test {
namespace {

TEST(CommandLine, VersionAndHelpAreOnStdout) {
  auto version = run_isogate({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out, "isogate " ISOGATE_VERSION "\n");
  auto help = run_isogate({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.err, "");
}

TEST(CommandLine, NothingShowsHelpOnStderr) {
  auto done = run_isogate({});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_EQ(done.out, "");
  EXPECT_NE(done.err.find("Usage: isogate"), std::string::npos);
}

void expect_help(const cli::CommandInfo& command, std::vector<std::string> words) {
  const auto help_of = [](std::vector<std::string> arguments) {
    arguments.emplace_back("--help");
    return run_isogate(arguments);
  };
  const auto done = help_of(words);
  std::string usage = "Usage: isogate";
  for (const std::string& word : words) usage += " " + word;
  EXPECT_EQ(done.exit_code, 0) << usage;
  EXPECT_EQ(done.err, "") << usage;
  EXPECT_NE(done.out.find(usage + " "), std::string::npos) << done.out;
  EXPECT_NE(command.brief, "") << usage;
  EXPECT_EQ(done.out.find("\n  man "), std::string::npos) << "a hidden command in the help";
  for (const cli::CommandInfo& inner : command.commands) {
    EXPECT_NE(done.out.find("\n  " + inner.name + " "), std::string::npos) << usage << ": " << inner.name;
    words.push_back(inner.name);
    expect_help(inner, words);
    words.pop_back();
  }
}

TEST(CommandLine, EveryCommandHasHelp) {
  CLI::App app("Runs commands of AI agents in sandboxes");
  cli::Parsed parsed;
  cli::declare(app, parsed);
  const cli::CommandInfo all = cli::command_info(&app);
  EXPECT_GE(all.commands.size(), 20u);
  expect_help(all, {});
}

struct Mistake {
  std::vector<std::string> arguments;
  std::string said;
};

TEST(CommandLine, MistakesAreUsageErrorsThatSayWhatToDo) {
  const Mistake mistakes[] = {
      {{"exce"}, "Did you mean `exec`?"},
      {{"sevre"}, "Did you mean `serve`?"},
      {{"plugin", "descibe"}, "Did you mean `describe`?"},
      {{"config", "chekc"}, "Did you mean `check`?"},
      {{"xyzzy"}, "`xyzzy` is no command"},
      {{"plugin"}, "isogate plugin --help"},
      {{"exec"}, "-c"},
      {{"exec", "ls"}, "put -- before the program"},
      {{"exec", "ls", "-l", "/"}, "put -- before the program: isogate exec [options] -- ls"},
      {{"exec", "--agent", "a", "ls", "-l"}, "isogate exec [options] -- ls"},
      {{"exec", "--"}, "nothing follows --"},
      {{"exec", "-c", "x", "--", "y"}, "not both"},
      {{"exec", "--lines", "--", "y"}, "--lines needs --stream"},
      {{"exec", "--stream", "-d", "--", "y"}, "--stream does not go with -d"},
      {{"exec", "-i", "--stdin", "--", "y"}, "--stdin does not go with -i"},
      {{"exec", "-it", "--json", "--", "y"}, "--json does not go with -i"},
      {{"exec", "-d", "ls", "-l"}, "isogate exec [options] -- ls"},
      {{"shell", "a", "b"}, "b"},
      {{"logs"}, "exec_id is required"},
      {{"attach", "--json", "x"}, "--json"},
      {{"kill", "-s", "TERM"}, "exec_id is required"},
      {{"exec", "--timout", "4", "--", "ls"}, "Did you mean `--timeout`?"},
      {{"exec", "--timeout", "soon", "--", "ls"}, "--timeout"},
      {{"exec", "--memory-mb", "-1", "--", "ls"}, "--memory-mb"},
      {{"exec", "--memory-mb", "0", "--", "ls"}, "at least 1"},
      {{"exec", "--max-pids", "1.5", "--", "ls"}, "--max-pids"},
      {{"exec", "--timeout", "nan", "--", "ls"}, "above 0"},
      {{"exec", "--timeout", "-1", "--", "ls"}, "--timeout"},
      {{"exec", "--timeout", "0", "--", "ls"}, "above 0"},
      {{"plugin", "describe"}, "isogate plugin describe --help"},
      {{"exec", "--min-isolation", "total", "--", "ls"}, "none|namespace|container|vm"},
      {{"exec", "--env", "novalue", "--", "ls"}, "NAME=VALUE"},
      {{"read"}, "path is required"},
      {{"read", "f", "--limit", "0"}, "--limit"},
      {{"read", "f", "--scope", "host"}, "workspace|sandbox"},
      {{"serve", "--port", "99999"}, "--port"},
      {{"serve", "--prot", "1"}, "Did you mean `--port`?"},
      {{"completion", "tcsh"}, "bash|zsh|fish"},
      {{"config", "check", "a", "b"}, "b"},
      {{"key", "new", "--key", "x"}, "--key"},
  };
  for (const Mistake& mistake : mistakes) {
    auto done = run_isogate(mistake.arguments);
    std::string line;
    for (const std::string& argument : mistake.arguments) line += " " + argument;
    EXPECT_EQ(done.exit_code, 2) << line << "\n" << done.err;
    EXPECT_EQ(done.out, "") << line;
    EXPECT_NE(done.err.find(mistake.said), std::string::npos) << line << "\n" << done.err;
  }
}

TEST(CommandLine, ServeHasTheHistoricalFlags) {
  std::string help = run_isogate({"serve", "--help"}).out;
  for (const char* flag : {"--port", "--shell", "--workdir", "--multi-agent", "--shared-dirs",
                           "--toolchain-path", "--config", "--listen", "--state-dir", "--backend",
                           "--allow-unisolated", "--require-remote", "--log-level", "--log-file"})
    EXPECT_NE(help.find(std::string(flag) + " "), std::string::npos) << flag;
}

TEST(CommandLine, ServeRefusesABadConfigurationWithEveryMistake) {
  TemporaryDirectory directory;
  std::string config = directory.file("c.yaml", "multi_agnt: true\nlimits: {max_execs: lots}\n");
  auto done = run_isogate({"serve", "--config", config});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("c.yaml:1:1"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("did you mean `multi_agent`"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("max_execs"), std::string::npos) << done.err;
}

TEST(CommandLine, AFullDiskIsAnError) {
  auto done = run_program({"sh", "-c", isogate_binary() + " config docs > /dev/full"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("No space left"), std::string::npos) << done.err;
}

TEST(CommandLine, RolesWithoutASupervisorFail) {
  for (const char* role : {"_front", "_host", "_describe"}) {
    ProgramOptions options;
    options.timeout_sec = 20;
    EXPECT_NE(run_isogate({role}, options).exit_code, 0) << role;
  }
}

}  // namespace
}  // namespace isogate::test
