#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

const std::string kPlugins = ISOGATE_BUILD_DIR "/plugins";

std::string a_plugin() {
  std::string file = kPlugins + "/local.so";
  return read_whole(file).empty() ? "" : file;
}

TEST(PluginCommand, DescribeSaysWhatAPluginIs) {
  if (a_plugin().empty()) GTEST_SKIP() << "the plugin local is not built";
  auto json = run_isogate({"plugin", "describe", "--json", a_plugin()});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_EQ(Json::parse(json.out).at("id"), "local");
  auto text = run_isogate({"plugin", "describe", a_plugin()});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find("local"), std::string::npos);
  EXPECT_NE(text.out.find("config_schema\n{\n"), std::string::npos) << text.out;
}

// The first g++ command of a page, with the path of the source tree filled in.
std::string compiler_command(const std::string& page) {
  std::string text = read_whole(page);
  size_t begin = text.find("\ng++ ");
  if (begin == std::string::npos) return "";
  size_t end = ++begin;
  while ((end = text.find('\n', end)) != std::string::npos && text[end - 1] == '\\') ++end;
  std::string command = text.substr(begin, end - begin);
  const std::string place = "/path/to/isogate";
  for (size_t at; (at = command.find(place)) != std::string::npos;)
    command.replace(at, place.size(), ISOGATE_SOURCE_DIR);
  return command;
}

class OwnDirectory {  // below the build directory, where plugins are trusted
 public:
  OwnDirectory() : path_(ISOGATE_BUILD_DIR "/page-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) abort();
  }
  ~OwnDirectory() { std::filesystem::remove_all(path_); }
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(PluginCommand, ThePageForAuthorsMakesAPluginWithoutAWarning) {
  OwnDirectory directory;
  std::string command = compiler_command(ISOGATE_SOURCE_DIR "/docs/writing-a-backend.md");
  ASSERT_NE(command, "");
  std::string all = "cd '" + directory.path() +
                    "' && cp '" ISOGATE_SOURCE_DIR "/sdk/examples/echo/echo.cc' . && " + command;
  ASSERT_EQ(std::system(all.c_str()), 0) << all;
  auto done = run_isogate({"plugin", "describe", "--json", directory.path() + "/echo.so"});
  if (done.err.find("writable by") != std::string::npos) GTEST_SKIP() << "no place for plugins: " << done.err;
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(Json::parse(done.out).at("warnings"), Json::array());
}

// What stands between ```cpp and ``` on a page.
std::vector<std::string> cpp_of(const std::string& page) {
  const std::string text = read_whole(page), opening = "\n```cpp\n", closing = "\n```\n";
  std::vector<std::string> blocks;
  for (size_t at = 0; (at = text.find(opening, at)) != std::string::npos;) {
    at += opening.size();
    blocks.push_back(text.substr(at, text.find(closing, at) + 1 - at));
  }
  return blocks;
}

TEST(PluginCommand, TheBackendOfThePageForAuthorsIsAPluginWithEvidence) {
  const OwnDirectory directory;
  const std::string page = ISOGATE_SOURCE_DIR "/docs/writing-a-backend.md";
  const std::vector<std::string> blocks = cpp_of(page);
  ASSERT_EQ(blocks.size(), 2u) << "the backend, and its export if it needs root";
  const std::string backend = blocks[0].substr(0, blocks[0].find("ISOGATE_EXPORT_BACKEND("));
  const std::string yours =
      "\nint start_runner(const std::string&, const sdk::Call&, bool&) { return -1; }\n"
      "void end_place(const std::string&, bool) {}\n"
      "void each_place(const std::function<void(const std::string&)>&) {}\n";
  std::ofstream(directory.path() + "/user.cc") << blocks[0] << yours;
  std::ofstream(directory.path() + "/root.cc") << backend << yours << blocks[1];
  std::string command = compiler_command(page);
  const std::string options = " -O0 -Wall -Wextra -Werror ", example = "-o echo.so echo.cc";
  ASSERT_NE(command.find(example), std::string::npos) << command;
  command.replace(command.find(example), example.size(),
                  "-o root.so root.cc " ISOGATE_SOURCE_DIR "/sdk/runner_link/*.cc" + options);
  const std::string all = "cd '" + directory.path() + "' && " + command +
                          " && g++ -std=c++20 -fsyntax-only -I " ISOGATE_SOURCE_DIR "/sdk/include" + options +
                          "user.cc";
  ASSERT_EQ(std::system(all.c_str()), 0) << all;
  auto done = run_isogate({"plugin", "describe", "--json", directory.path() + "/root.so"});
  if (done.err.find("writable by") != std::string::npos) GTEST_SKIP() << "no place for plugins: " << done.err;
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const Json described = Json::parse(done.out);
  EXPECT_EQ(described.at("isolation").get<std::string>(), "vm");
  EXPECT_EQ(described.at("leaves_out"), Json::array({"connect"}));
  EXPECT_EQ(described.at("linux_capabilities"), Json::array({"sys_admin"}));
  EXPECT_EQ(described.at("warnings"), Json::array());
}

TEST(PluginCommand, AClaimThatItsClassDoesNotMeetDoesNotCompile) {
  const OwnDirectory directory;
  const std::string echo = read_whole(ISOGATE_SOURCE_DIR "/sdk/examples/echo/echo.cc");
  const std::string summary = ".summary = \"echoes\"";
  ASSERT_NE(echo.find(summary), std::string::npos);
  const auto compiled = [&](const std::string& claim) {
    const std::string file = directory.path() + "/claims.cc";
    std::ofstream(file) << std::string(echo).replace(echo.find(summary), summary.size(),
                                                     summary + ", " + claim);
    return run_program({"g++", "-std=c++20", "-fsyntax-only", "-I", ISOGATE_SOURCE_DIR "/sdk/include", file});
  };
  const auto fits = compiled(".capabilities = ISOGATE_CAP_PTY");
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  const std::pair<const char*, const char*> misfits[] = {
      {".isolation = ISOGATE_ISOLATION_VM", "claim ISOGATE_CAP_EVIDENCE"},
      {".capabilities = ISOGATE_CAP_EGRESS_DENY", "need ISOGATE_CAP_EVIDENCE"},
      {".capabilities = ISOGATE_CAP_EVIDENCE", "overrides evidence()"},
      {".capabilities = ISOGATE_CAP_WATCH", "overrides watch()"},
      {".capabilities = ISOGATE_CAP_PORTS", "overrides connect()"},
      {".capabilities = ISOGATE_CAP_KEPT_EXECS", "overrides start_kept() and rejoin()"}};
  for (const auto& [claim, why] : misfits) {
    const auto done = compiled(claim);
    EXPECT_NE(done.exit_code, 0) << claim;
    EXPECT_NE(done.err.find(why), std::string::npos) << claim << ": " << done.err;
  }
}

TEST(PluginCommand, DescribeWarnsInALineEach) {
  OwnDirectory directory;
  std::string all = "cd '" + directory.path() +
                    "' && g++ -std=c++20 -shared -fPIC -I '" ISOGATE_SOURCE_DIR
                    "/sdk/include' -o echo.so '" ISOGATE_SOURCE_DIR "/sdk/examples/echo/echo.cc'";
  ASSERT_EQ(std::system(all.c_str()), 0);
  auto done = run_isogate({"plugin", "describe", directory.path() + "/echo.so"});
  if (done.err.find("writable by") != std::string::npos) GTEST_SKIP() << "no place for plugins: " << done.err;
  size_t lines = 0, exports = 0;
  for (size_t at = 0; (at = done.out.find("\nwarning  ", at)) != std::string::npos; ++at) ++lines;
  for (size_t at = 0; (at = done.out.find("it also exports", at)) != std::string::npos; ++at) ++exports;
  EXPECT_GT(exports, 1u) << done.out;
  EXPECT_EQ(lines, exports) << done.out;
}

TEST(PluginCommand, DescribeTakesARelativePath) {
  if (a_plugin().empty()) GTEST_SKIP() << "the plugin local is not built";
  ProgramOptions options;
  options.cwd = kPlugins;
  auto done = run_isogate({"plugin", "describe", "local.so"}, options);
  EXPECT_EQ(done.exit_code, 0) << done.err;
}

TEST(PluginCommand, DescribeNamesTheDirectoryThatIsMountedNoexecAndTakesAnother) {
  if (a_plugin().empty()) GTEST_SKIP() << "the plugin local is not built";
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount /tmp noexec";
  auto done = run_with_tmp_noexec({isogate_binary(), "plugin", "describe", a_plugin()});
  if (done.exit_code == 77) GTEST_SKIP() << "cannot mount /tmp noexec: " << done.err;
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("`/tmp` is on a file system mounted noexec"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("TMPDIR"), std::string::npos) << done.err;
  TemporaryDirectory directory("/var/tmp");
  const std::vector<std::string> command = {
      "env", "TMPDIR=" + directory.path(), isogate_binary(), "plugin", "describe", a_plugin()};
  EXPECT_EQ(run_with_tmp_noexec(command).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "the copy is left";
}

// Its own must be one that nobody else can replace.
TEST(PluginCommand, DescribeAsRootRefusesATemporaryDirectoryThatOthersCanChange) {
  if (a_plugin().empty()) GTEST_SKIP() << "the plugin local is not built";
  if (::geteuid() != 0) GTEST_SKIP() << "only root's directory is looked at";
  TemporaryDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0777), 0);
  ProgramOptions options;
  options.env = {{"TMPDIR", directory.path()}};
  auto done = run_isogate({"plugin", "describe", a_plugin()}, options);
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("`" + directory.path() + "` is writable by everybody"), std::string::npos)
      << done.err;
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(PluginCommand, DescribeRefusesWhatIsNoPlugin) {
  TemporaryDirectory directory;
  for (const std::string& file : {std::string("/bin/true"), std::string("/nonexistent.so"),
                                  directory.file("x.so", "text"), directory.path()}) {
    auto done = run_isogate({"plugin", "describe", file});
    EXPECT_EQ(done.exit_code, 1) << file;
    EXPECT_EQ(done.out, "") << file;
    EXPECT_EQ(done.err.find("isogate: "), 0u) << done.err;
  }
}

TEST(PluginCommand, ListShowsEachPluginOfTheDirectory) {
  if (a_plugin().empty()) GTEST_SKIP() << "the plugin local is not built";
  TemporaryDirectory directory;
  std::string config = directory.file("c.yaml", "plugin_dir: " + kPlugins + "\n");
  auto json = run_isogate({"plugin", "list", "--json", "--config", config});
  Json report = Json::parse(json.out);
  bool found = false;
  for (const Json& plugin : report.at("plugins")) found = found || plugin.value("id", "") == "local";
  EXPECT_TRUE(found) << json.out;
  EXPECT_NE(run_isogate({"plugin", "list", "--config", config}).out.find("local.so"), std::string::npos);
}

TEST(PluginCommand, ListOfADirectoryThatIsNotThereIs1) {
  TemporaryDirectory directory;
  std::string config = directory.file("c.yaml", "plugin_dir: /nonexistent\n");
  auto done = run_isogate({"plugin", "list", "--config", config});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_NE(done.err.find("/nonexistent"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace isogate::test
