#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

const char* const kPage = ISOGATE_SOURCE_DIR "/docs/isogate.1";

std::string rendered() {
  ProgramOptions options;
  options.env = {{"MANWIDTH", "200"}, {"LC_ALL", "C.UTF-8"}};
  return run_program(
             {"sh", "-c", std::string("man --no-hyphenation --no-justification -l ") + kPage + " | col -b"},
             options)
      .out;
}

TEST(Man, CommittedPageIsInStep) {
  EXPECT_EQ(read_whole(kPage), run_isogate({"man"}).out) << "run scripts/generate.sh";
}

TEST(Man, RendersWithoutWarnings) {
  if (run_program({"sh", "-c", "command -v man"}).exit_code != 0) GTEST_SKIP() << "man is not installed";
  auto done = run_program({"sh", "-c",
                           std::string("LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z ") +
                               kPage + " > /dev/null"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.err, "");
}

// Every command there is, by walking the help.
void collect(const std::vector<std::string>& path, std::vector<std::vector<std::string>>& commands) {
  std::vector<std::string> arguments = path;
  arguments.emplace_back("--help");
  std::string help = run_isogate(arguments).out;
  size_t at = help.find("\nSubcommands:\n");
  if (!path.empty()) commands.push_back(path);
  if (at == std::string::npos) return;
  std::string list = help.substr(at);
  static const std::regex name("\n  ([a-z-]+)");
  for (std::sregex_iterator it(list.begin(), list.end(), name), end; it != end; ++it) {
    std::vector<std::string> inner = path;
    inner.push_back((*it)[1]);
    collect(inner, commands);
  }
}

TEST(Man, NamesEveryCommandAndOption) {
  if (run_program({"sh", "-c", "command -v man && command -v col"}).exit_code != 0)
    GTEST_SKIP() << "man or col is not installed";
  std::string page = rendered();
  std::vector<std::vector<std::string>> commands;
  collect({}, commands);
  EXPECT_GE(commands.size(), 24u);
  for (const auto& path : commands) {
    std::string heading = "isogate";
    for (const std::string& word : path) heading += " " + word;
    size_t from = page.find("\n   " + heading + "\n");
    ASSERT_NE(from, std::string::npos) << heading;
    size_t to = std::min(page.find("\n   isogate ", from + 4), page.find("\nEXIT STATUS", from));
    std::string section = page.substr(from, to - from);
    std::vector<std::string> arguments = path;
    arguments.emplace_back("--help");
    std::string help = run_isogate(arguments).out;
    static const std::regex option("\n  (-[a-zA-Z],)?(--[a-z-]+)");
    for (std::sregex_iterator it(help.begin(), help.end(), option), end; it != end; ++it)
      if ((*it)[2] != "--help") {
        EXPECT_NE(section.find((*it)[2]), std::string::npos) << heading << " " << (*it)[2];
      }
  }
}

TEST(Man, DocumentsTheVariablesOfClients) {
  const std::string page = read_whole(kPage);
  for (const char* name :
       {"ISOGATE_URL", "ISOGATE_KEY", "ISOGATE_CA_FILE", "ISOGATE_CERT_FILE", "ISOGATE_STATE_DIR"})
    EXPECT_NE(page.find(std::string("\n.B ") + name + "\n"), std::string::npos) << name;
}

TEST(Man, DocumentsEveryExitCode) {
  if (run_program({"sh", "-c", "command -v man && command -v col"}).exit_code != 0)
    GTEST_SKIP() << "man or col is not installed";
  std::string page = rendered();
  page = page.substr(std::min(page.size(), page.find("EXIT STATUS")));
  for (const char* code : {"0 ", "1 ", "2 ", "125", "130", "141", "124", "137", "128+n"})
    EXPECT_NE(page.find(code), std::string::npos) << code;
}

}  // namespace
}  // namespace isogate::test
