// What `cmake --install` installs from a build directory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

class Installed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    place_ = new TemporaryDirectory();
    const auto done = run_program({"cmake", "--install", ISOGATE_BUILD_DIR, "--prefix", place_->path()});
    ASSERT_EQ(done.exit_code, 0) << done.err;
  }
  static void TearDownTestSuite() { delete place_; }
  static std::string path(const std::string& name) { return place_->path() + "/" + name; }
  static ProgramResult isogate(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), path("bin/isogate"));
    return run_program(arguments);
  }
  static TemporaryDirectory* place_;
};
TemporaryDirectory* Installed::place_ = nullptr;

TEST_F(Installed, TheProgramFindsItsPlugins) {
  EXPECT_EQ(isogate({"--version"}).out.rfind("isogate ", 0), 0u);
  const auto shown = isogate({"config", "show"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(nlohmann::json::parse(shown.out).at("plugin_dir"), path("lib/isogate/plugins"));
  const auto described = isogate({"plugin", "describe", path("lib/isogate/plugins/local.so")});
  EXPECT_EQ(described.exit_code, 0) << described.err;
  EXPECT_NE(described.out.find("isolation           none"), std::string::npos) << described.out;
}

TEST_F(Installed, TheSampleConfigurationsAreThere) {
  for (const char* name : {"local-dev.yaml", "production.yaml", "isogate.schema.json"})
    EXPECT_TRUE(std::filesystem::exists(path("share/doc/isogate/examples/") + name)) << name;
  EXPECT_EQ(isogate({"config", "check", path("share/doc/isogate/examples/local-dev.yaml")}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(path("share/man/man1/isogate.1")));
}

TEST_F(Installed, TheDeploymentsAreThere) {
  for (const char* name :
       {"compose/compose.yaml", "helm/isogate/Chart.yaml", "helm/isogate/templates/_helpers.tpl",
        "k8s/rbac.yaml", "k8s/gateway.yaml", "k8s/sidecar.yaml", "sandbox-image/Dockerfile"})
    EXPECT_TRUE(std::filesystem::exists(path("share/isogate/deploy/") + name)) << name;
  EXPECT_EQ(::access(path("share/isogate/deploy/sandbox-image/build.sh").c_str(), X_OK), 0);
  const std::string hash(64, '1');
  const auto checked =
      run_program({path("bin/isogate"), "config", "check", path("share/isogate/deploy/compose/isogate.yaml")},
                  {.env = {{"ISOGATE_KEYS", R"([{"name":"a","tenant":"b","sha256":")" + hash + "\"}]"}}});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

TEST_F(Installed, AStrangerBuildsABackend) {
  const TemporaryDirectory project;
  (void)project.file("echo.cc", read_whole(path("share/doc/isogate/sdk/examples/echo/echo.cc")));
  (void)project.file("CMakeLists.txt",
                     "cmake_minimum_required(VERSION 3.16)\nproject(echo CXX)\n"
                     "add_compile_options(-Wall -Wextra -Werror)\n"
                     "find_package(isogate-sdk REQUIRED)\nisogate_sdk_plugin(echo echo.cc)\n"
                     "isogate_sdk_plugin(linked RUNNER_LINK linked.cc)\n");
  (void)project.file("linked.cc",
                     "#include \"isogate/runner_link.hpp\"\n"
                     "[[gnu::used]] static const auto linked = &isogate::sdk::RunnerLink::connect;\n"
                     "#include \"echo.cc\"\n");
  const std::string build = project.path() + "/build";
  const auto configured = run_program(
      {"cmake", "-G", "Ninja", "-S", project.path(), "-B", build, "-DCMAKE_PREFIX_PATH=" + place_->path()});
  ASSERT_EQ(configured.exit_code, 0) << configured.err;
  const auto built = run_program({"cmake", "--build", build}, {.timeout_sec = 300});
  ASSERT_EQ(built.exit_code, 0) << built.out << built.err;
  for (const char* plugin : {"/echo.so", "/linked.so"}) {
    const auto described = isogate({"plugin", "describe", build + plugin});
    EXPECT_EQ(described.exit_code, 0) << described.err;
    EXPECT_EQ(described.err, "") << "a warning";
    EXPECT_NE(described.out.find("com.example.echo"), std::string::npos) << described.out;
  }
}

TEST_F(Installed, LinksOfThePagesLeadToFiles) {
  const std::regex link(R"(\]\(([^)#:]+)[^):]*\))"),
      only_in_the_sources("(\\.\\./)?(bench|clients|tests|[AC][A-Z]+\\.md).*");
  size_t links = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("share/doc/isogate"))) {
    const std::filesystem::path& file = entry.path();
    if (file.extension() != ".md") continue;
    const std::string text = read_whole(file);
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      const std::string target = (*at)[1];
      if (std::regex_match(target, only_in_the_sources)) continue;
      ++links;
      EXPECT_TRUE(std::filesystem::exists(file.parent_path() / target)) << file << ": " << target;
    }
  }
  EXPECT_GT(links, 50u);
}

// In one of its own, file systems of sandboxes would be invisible to a Docker Engine and end with the
// service.
TEST_F(Installed, TheUnitHasTheMachinesMountNamespace) {
  std::istringstream unit(read_whole(path("lib/systemd/system/isogate.service")));
  int settings = 0;
  for (std::string line; std::getline(unit, line);) {
    if (line.empty() || line[0] == '#' || line[0] == '[') continue;
    ++settings;
    for (const char* name :
         {"Private", "Protect", "ProcSubset", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths",
          "ExecPaths", "NoExecPaths", "TemporaryFileSystem", "Bind", "Mount", "Root", "Extension",
          "DynamicUser", "LogNamespace", "LoadCredential", "SetCredential", "ImportCredential"})
      EXPECT_FALSE(line.starts_with(name)) << line;
  }
  EXPECT_GT(settings, 15);
}

// A start that waits for another gateway is no hung one: the supervisor bounds it.
TEST_F(Installed, TheUnitLetsTheStartTakeItsTime) {
  EXPECT_NE(read_whole(path("lib/systemd/system/isogate.service")).find("\nTimeoutStartSec=infinity\n"),
            std::string::npos);
}

TEST_F(Installed, TheUnitIsOneThatSystemdTakes) {
  if (::access("/usr/bin/systemd-analyze", X_OK) != 0) GTEST_SKIP() << "there is no systemd-analyze here";
  std::string unit = read_whole(path("lib/systemd/system/isogate.service"));
  for (size_t at; (at = unit.find("/usr/local/bin/isogate")) != std::string::npos;)
    unit.replace(at, 22, path("bin/isogate"));
  ASSERT_NE(unit.find("ExecStart=" + path("bin/isogate")), std::string::npos) << unit;
  const TemporaryDirectory units;
  const std::string file = units.file("isogate.service", unit);
  const auto verified = run_program({"systemd-analyze", "verify", "--man=no", file});
  EXPECT_EQ(verified.err.find("isogate.service"), std::string::npos) << verified.err;
}

}  // namespace
}  // namespace isogate::test
