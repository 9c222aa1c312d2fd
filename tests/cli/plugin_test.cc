#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/program.h"

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
}

TEST(PluginCommand, DescribeTakesARelativePath) {
  if (a_plugin().empty()) GTEST_SKIP() << "the plugin local is not built";
  ProgramOptions options;
  options.cwd = kPlugins;
  auto done = run_isogate({"plugin", "describe", "local.so"}, options);
  EXPECT_EQ(done.exit_code, 0) << done.err;
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
