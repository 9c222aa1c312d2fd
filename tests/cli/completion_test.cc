// The completions, loaded into the real shells, and something really completed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/cli/terminal.h"
#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

bool there(const std::string& program) {
  return run_program({"sh", "-c", "command -v " + program}).exit_code == 0;
}

std::string script_for(const std::string& shell) {
  auto done = run_isogate({"completion", shell});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  return done.out;
}

struct Completed {
  std::string typed;
  std::set<std::string> offered;  // exactly these
};

const std::vector<Completed>& cases() {
  static const std::vector<Completed> all = {
      {"isogate ex", {"exec"}},
      {"isogate co", {"config", "completion"}},
      {"isogate config ", {"check", "show", "schema", "docs"}},
      {"isogate plugin d", {"describe"}},
      {"isogate key ", {"new", "hash"}},
      {"isogate completion ", {"bash", "zsh", "fish"}},
      {"isogate exec --min-isolation ", {"none", "namespace", "container", "vm"}},
      {"isogate exec --min-isolation c", {"container"}},
      {"isogate exec --memo", {"--memory-mb"}},
      {"isogate serve --allow-u", {"--allow-unisolated"}},
      {"isogate serve --log-level d", {"debug"}},
      {"isogate plugin list --c", {"--config"}},
  };
  return all;
}

// The scripts run `isogate`.
class Completion : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string program = isogate_binary();
    ::setenv("PATH", (program.substr(0, program.rfind('/') + 1) + ":" + path_).c_str(), 1);
  }
  void TearDown() override { ::setenv("PATH", path_.c_str(), 1); }

 private:
  const std::string path_ = std::getenv("PATH");
};

TEST_F(Completion, GoesByTheWordsBeforeTheCursor) {
  const std::pair<std::vector<std::string>, const char*> offers[] = {
      {{"serve", "--config", ""}, "files\n"},
      {{"serve", "--state-dir", ""}, "directories\n"},
      {{"serve", "--log-level=d"},
       "words\n--log-level=debug\n--log-level=info\n--log-level=warn\n--log-level=error\n"},
      {{"serve", "--log-level", "=", "d"}, "words\ndebug\ninfo\nwarn\nerror\n"},  // as bash cuts it
      {{"serve", "--port", ""}, "words\n"},
      {{"write", ""}, "words\n"},
      {{"write", "--agent", "alice", "data.csv", ""}, "files\n"},
      {{"key", "hash", "--json", "-"}, "words\n-h\tPrint help\n--help\tPrint help\n"},
      {{"exec", "--", ""}, "programs\n"},
  };
  for (const auto& [words, offered] : offers) {
    std::vector<std::string> arguments = {"_complete"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    EXPECT_EQ(run_isogate(arguments).out, offered) << words[0];
  }
}

// Calls the completion function as bash would.
TEST_F(Completion, Bash) {
  TemporaryDirectory directory;
  std::string script = directory.file("isogate.bash", script_for("bash"));
  for (const Completed& one : cases()) {
    std::string program =
        "source " + script + "; COMP_LINE='" + one.typed +
        "'; read -ra COMP_WORDS <<< \"$COMP_LINE\"; "
        "[[ $COMP_LINE == *' ' ]] && COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
        "_isogate; printf '%s\\n' \"${COMPREPLY[@]}\"";
    auto done = run_program({"bash", "--norc", "-c", program});
    EXPECT_EQ(done.err, "") << one.typed;
    std::istringstream lines(done.out);
    std::set<std::string> offered;
    for (std::string line; std::getline(lines, line);) offered.insert(line);
    EXPECT_EQ(offered, one.offered) << one.typed;
  }
}

TEST_F(Completion, BashCompletesFilesAfterTheirOptions) {
  TemporaryDirectory directory;
  std::string script = directory.file("isogate.bash", script_for("bash"));
  directory.file("settings.yaml", "");
  auto done = run_program({"bash", "--norc", "-c",
                           "source " + script + "; COMP_WORDS=(isogate serve --config " + directory.path() +
                               "/sett); COMP_CWORD=3; _isogate; echo ${COMPREPLY[@]}"});
  EXPECT_EQ(done.out, directory.path() + "/settings.yaml\n");
}

TEST_F(Completion, BashOnATerminal) {
  TemporaryDirectory directory;
  std::string script = directory.file("isogate.bash", script_for("bash"));
  Terminal terminal({"bash", "--norc", "--noprofile", "-i"});
  terminal.type("PS1=ready'>'; source " + script + "; echo loaded\n");
  ASSERT_TRUE(terminal.shows("\nloaded")) << terminal.everything();
  terminal.type("isogate plu\tdes\t");
  EXPECT_TRUE(terminal.shows("isogate plugin describe ")) << terminal.everything();
}

TEST_F(Completion, Zsh) {
  if (!there("zsh")) GTEST_SKIP() << "zsh is not installed";
  TemporaryDirectory directory;
  directory.file("_isogate", script_for("zsh"));
  Terminal terminal({"zsh", "-f", "-i"});
  terminal.type("unsetopt zle_bracketed_paste prompt_cr prompt_sp; PS1=ready'>' fpath=(" + directory.path() +
                " $fpath); autoload -U compinit; compinit -u -D; setopt list_rows_first; echo loaded\n");
  ASSERT_TRUE(terminal.shows("\nloaded")) << terminal.everything();
  const std::pair<const char*, const char*> typed[] = {
      {"isogate ex\t", "isogate exec "},
      {"isogate plugin des\t", "isogate plugin describe "},
      {"isogate exec --memo\t", "isogate exec --memory-mb "},
      {"isogate exec --min-isolation cont\t", "isogate exec --min-isolation container "},
      {"isogate serve --allow-u\t", "isogate serve --allow-unisolated "},
      {"isogate completion f\t", "isogate completion fish "},
  };
  for (const auto& [keys, line] : typed) {
    terminal.type(keys);
    EXPECT_TRUE(terminal.shows(line)) << keys << "\n" << terminal.everything();
    terminal.type("\x15");  // Ctrl-U
  }
  terminal.type("isogate config \t\t");
  EXPECT_TRUE(terminal.shows("List the mistakes in it")) << terminal.everything();
}

TEST_F(Completion, ZshAlsoWhenSourced) {
  if (!there("zsh")) GTEST_SKIP() << "zsh is not installed";
  TemporaryDirectory directory;
  std::string script = directory.file("isogate.zsh", script_for("zsh"));
  auto done =
      run_program({"zsh", "-f", "-c",
                   "autoload -U compinit; compinit -u -D; source " + script + "; echo $_comps[isogate]"});
  EXPECT_EQ(done.err, "");
  EXPECT_EQ(done.out, "_isogate\n");
}

TEST_F(Completion, Fish) {
  if (!there("fish")) GTEST_SKIP() << "fish is not installed";
  TemporaryDirectory directory;
  std::string script = directory.file("isogate.fish", script_for("fish"));
  ProgramOptions options;
  options.env = {{"HOME", directory.path()}};
  for (const Completed& one : cases()) {
    auto done = run_program(
        {"fish", "--no-config", "-c", "source " + script + "; complete -C '" + one.typed + "'"}, options);
    EXPECT_EQ(done.err, "") << one.typed;
    std::istringstream lines(done.out);
    std::set<std::string> offered;
    for (std::string line; std::getline(lines, line);) offered.insert(line.substr(0, line.find('\t')));
    EXPECT_EQ(offered, one.offered) << one.typed;
  }
}

TEST_F(Completion, CommittedFilesAreInStep) {
  const std::pair<const char*, const char*> files[] = {
      {"bash", "isogate.bash"}, {"zsh", "_isogate"}, {"fish", "isogate.fish"}};
  for (const auto& [shell, file] : files)
    EXPECT_EQ(read_whole(std::string(ISOGATE_SOURCE_DIR "/docs/completions/") + file), script_for(shell))
        << "run scripts/generate.sh";
}

}  // namespace
}  // namespace isogate::test
