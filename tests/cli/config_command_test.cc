#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "runner/cgroup/cgroup_base.h"
#include "tests/eventually.h"
#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

using Json = nlohmann::json;

TEST(ConfigCommand, CheckSaysValidAndNamesTheFileAndItsPlugins) {
  TemporaryDirectory directory;
  const std::string plugins = ISOGATE_BUILD_DIR "/plugins";
  std::string good = directory.file(
      "good.yaml",
      "plugin_dir: " + plugins + "\nallow_unisolated: true\nbackends: [{name: local}, {name: absent}]\n");
  std::string plugin = plugins + "/local.so";
  auto done = run_isogate({"config", "check", good});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out.find(good + ": valid\nbackend local: " + plugin +
                          "\nbackend absent: note: plugin `absent` is not installed: no "),
            0u)
      << done.out;
}

struct Wrong {
  const char *yaml, *place, *reason;
};

TEST(ConfigCommand, CheckLooksAtWhatTheConfigurationNames) {
  const Wrong all[] = {
      {"backends: [{name: local, config: {no_such: 1}}]", ":3:", "`backends[0].config`: config of backend"},
      {"backends: [{name: locl}]", ":3:", "did you mean `local`?"},
      {"backends:\n  - name: local\n    plugin: /nowhere/x.so", ":5:13: `backends[0].plugin`",
       "no /nowhere/x.so"},
      {"backends: [{name: local, sha256: "
       "\"0000000000000000000000000000000000000000000000000000000000000001\"}]",
       ":3:", "pinned is 0000"},
      {"backends: [{name: local, run_as: nobody-such}]", ":3:", "there is no user `nobody-such`"},
      {"shared_dirs: [{prefix: docs, path: /nowhere}]\nbackends: [{name: local}]", "`shared_dirs[0].path`",
       "cannot find the directory `/nowhere`"},
      {"backends: [{name: local, groups: [no-such-group]}]", "`backends[0].groups[0]`",
       "there is no group `no-such-group`"},
      {"log: {file: /tmp}\nbackends: [{name: local}]", "`log.file`", "`/tmp` is a directory"},
      {"log: {file: /nowhere/isogate.log}\nbackends: [{name: local}]", "`log.file`", "`/nowhere`"},
      {"tls: {cert: /nowhere/cert.pem, key: /nowhere/key.pem}\nbackends: [{name: local}]", "`tls.cert`",
       "/nowhere/cert.pem"}};
  for (const Wrong& wrong : all) {
    TemporaryDirectory directory;
    auto done = run_isogate(
        {"config", "check",
         directory.file("c.yaml", "plugin_dir: " ISOGATE_BUILD_DIR "/plugins\nallow_unisolated: true\n" +
                                      std::string(wrong.yaml) + "\n")});
    EXPECT_EQ(done.exit_code, 1) << wrong.yaml << done.out << done.err;
    EXPECT_EQ(done.out, "") << wrong.yaml;
    EXPECT_NE(done.err.find(wrong.place), std::string::npos) << wrong.yaml << "\n" << done.err;
    EXPECT_NE(done.err.find(wrong.reason), std::string::npos) << wrong.yaml << "\n" << done.err;
  }
}

TEST(ConfigCommand, CheckRefusesAStateDirectoryThatAStartRefuses) {
  TemporaryDirectory directory;
  const std::string state = directory.path() + "/state";
  ASSERT_EQ(::mkdir(state.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(state.c_str(), 0777), 0);
  const std::string file = directory.file("c.yaml",
                                          "allow_unisolated: true\nbackends: [{name: local}]\n"
                                          "state_dir: " +
                                              state + "\n");
  auto done = run_isogate({"config", "check", file});
  EXPECT_EQ(done.exit_code, 1) << done.out;
  EXPECT_NE(done.err.find("refusing to use `" + state + "`: its mode is 0777"), std::string::npos)
      << done.err;
}

TEST(ConfigCommand, CheckWarnsOfWhatHasNoEffectOrCannotServe) {
  const std::pair<const char*, const char*> all[] = {
      {"min_isolation: container\nbackends: [{name: local}]",
       "warning: no backend of this file can serve a call here: `local`, its isolation is none, below the "
       "container"},
      {"backends: [{name: local, images: ['debian:*']}]", "`backends[0].images`: has no effect"},
      {"backends: [{name: local, groups: [daemon]}]", "`backends[0].groups`: has no effect"},
      {"backends: [{name: local}]\ntls: {client_auth: optional}", "`tls.client_auth`: has no effect"},
      {"backends: [{name: local}]\nlisten: ['127.0.0.1:9090', 'unix:/nowhere/x.sock']",
       "`listen[1]`: there is no directory `/nowhere`"}};
  for (const auto& [yaml, warning] : all) {
    TemporaryDirectory directory;
    auto done = run_isogate(
        {"config", "check",
         directory.file("c.yaml", "plugin_dir: " ISOGATE_BUILD_DIR "/plugins\nallow_unisolated: true\n" +
                                      std::string(yaml) + "\n")});
    EXPECT_EQ(done.exit_code, 0) << yaml << done.err;
    EXPECT_NE(done.out.find(": valid\n"), std::string::npos) << yaml;
    EXPECT_NE(done.err.find(warning), std::string::npos) << yaml << "\n" << done.err;
  }
}

TEST(ConfigCommand, CheckOnlyNotesLimitsThatAServiceHas) {
  TemporaryDirectory directory;
  const std::string crowded = directory.file("crowded", std::string("gone") + kProcessesAbove),
                    gone = directory.file("gone", "gone");
  const auto checked = [&](const std::string& settings, const std::string& first) {
    std::string yaml = settings + "backends:\n";
    for (const auto& [name, file] : {std::pair("one", first), std::pair("two", gone)})
      yaml += std::string("  - {name: ") + name +
              ", plugin: " ISOGATE_BUILD_DIR "/test_plugins/faulty.so, config: {probe_file: " + file + "}}\n";
    return run_isogate({"config", "check", directory.file("c.yaml", yaml)});
  };
  const auto noted = checked("allow_unisolated: true\n", crowded);
  EXPECT_EQ(noted.exit_code, 0) << noted.err;
  EXPECT_NE(
      noted.out.find("note: limits cannot be tried in the cgroup of this check, and what else a sandbox "
                     "needs was not tried"),
      std::string::npos)
      << noted.out;
  EXPECT_EQ(noted.err.find("warning: no backend"), std::string::npos) << noted.err;
  const std::pair<const char*, std::string> never[] = {{"allow_unisolated: true\n", gone},
                                                       {"min_isolation: container\n", crowded},
                                                       {"require_remote: true\n", crowded}};
  for (const auto& [settings, first] : never) {
    const auto warned = checked(settings, first);
    EXPECT_EQ(warned.exit_code, 0) << settings << warned.err;
    EXPECT_NE(warned.err.find("warning: no backend of this file can serve a call here: `one`"),
              std::string::npos)
        << settings << warned.err;
    EXPECT_EQ(warned.out.find("limits cannot be tried"), std::string::npos) << settings << warned.out;
  }
}

TEST(ConfigCommand, AnInterruptedCheckIsNotValid) {
  TemporaryDirectory directory;
  Program program({isogate_binary(), "config", "check",
                   directory.file("c.yaml",
                                  "allow_unisolated: true\nbackends: [{name: slow, config: {create: hang}, "
                                  "plugin: " ISOGATE_BUILD_DIR "/test_plugins/faulty.so}]\n")},
                  {});
  const std::string id = std::to_string(program.pid());
  // It tries its backends: an earlier child describes the plugin, and signals end the program as ever.
  ASSERT_TRUE(eventually(20, [&] {
    const std::string status = read_whole("/proc/" + id + "/status");
    const size_t caught = status.find("SigCgt:");
    return caught != std::string::npos &&
           (std::stoull(status.substr(caught + 7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
  }));
  program.signal(SIGTERM);
  ASSERT_TRUE(program.wait(20));
  EXPECT_EQ(program.result.exit_code, 130) << program.result.err;
  EXPECT_EQ(program.result.out, "");
}

TEST(ConfigCommand, CheckMissesTheUsersOfRootsGateway) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's gateway needs the user isogate";
  TemporaryDirectory directory;
  const std::string users = directory.file("passwd", "root:x:0:0::/root:/bin/sh\n");
  const std::string config = directory.file("c.yaml", "allow_unisolated: true\nbackends: [{name: local}]\n");
  auto done = run_program({"unshare", "--mount", "sh", "-c",
                           R"(mount --bind "$1" /etc/passwd || exit 77; exec "$0" config check "$2")",
                           isogate_binary(), users, config});
  if (done.exit_code == 77) GTEST_SKIP() << "cannot replace /etc/passwd: " << done.err;
  EXPECT_EQ(done.exit_code, 1) << done.out;
  EXPECT_EQ(done.out, "");
  EXPECT_NE(done.err.find("there is no user `isogate`"), std::string::npos) << done.err;
}

// Not in /tmp, as is usual on a machine that was hardened.
TEST(ConfigCommand, CheckLoadsPluginsFromBesideTheStateDirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount /tmp noexec";
  TemporaryDirectory directory("/var/tmp");
  const std::string config = directory.file(
      "c.yaml",
      "allow_unisolated: true\nbackends: [{name: local}]\nstate_dir: " + directory.path() + "/state\n");
  auto done = run_with_tmp_noexec({isogate_binary(), "config", "check", config});
  if (done.exit_code == 77) GTEST_SKIP() << "cannot mount /tmp noexec: " << done.err;
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out.find("no backend was tried"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("\nbackend local: /"), std::string::npos) << done.out;
}

TEST(ConfigCommand, CheckShowsRelaxations) {
  TemporaryDirectory directory;
  auto done = run_isogate(
      {"config", "check", directory.file("c.yaml", "allow_unisolated: true\nbackends: [{name: local}]\n")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_NE(done.err.find("relaxed: "), std::string::npos) << done.err;
}

TEST(ConfigCommand, CheckRefusesWithPlaces) {
  TemporaryDirectory directory;
  auto done = run_isogate({"config", "check", directory.file("c.yaml", "\nport: 1\n")});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_EQ(done.out, "");
  EXPECT_NE(done.err.find("c.yaml:2:1"), std::string::npos) << done.err;
  EXPECT_EQ(run_isogate({"config", "check", "/nonexistent.yaml"}).exit_code, 1);
}

TEST(ConfigCommand, TheEnvironmentNamesTheFile) {
  TemporaryDirectory directory;
  ProgramOptions options;
  options.env = {{"ISOGATE_CONFIG", directory.file("c.yaml", "instance: from-env\n")}};
  EXPECT_EQ(Json::parse(run_isogate({"config", "show"}, options).out).at("instance"), "from-env");
}

TEST(ConfigCommand, ClientVariablesAreNoMistake) {
  TemporaryDirectory directory;
  ProgramOptions options;
  options.env = {{"ISOGATE_URL", "http://x"}, {"ISOGATE_KEY", "k"}, {"ISOGATE_CA_FILE", "/ca.pem"}};
  auto done =
      run_isogate({"config", "check", directory.file("c.yaml", "backends: [{name: local}]\n")}, options);
  EXPECT_EQ(done.exit_code, 0);
  for (const auto& [name, value] : options.env) EXPECT_EQ(done.err.find(name), std::string::npos) << done.err;
}

TEST(ConfigCommand, ShowHidesSecrets) {
  TemporaryDirectory directory;
  const std::string hash(64, 'a');
  std::string config = directory.file("c.yaml",
                                      "instance: demo\nexec: {env: {API_TOKEN: s3cret-one, LANG: C}}\n"
                                      "keys: [{name: k, tenant: t, sha256: " +
                                          hash +
                                          "}]\n"
                                          "backends:\n  - name: local\n    config: {password: s3cret-two, "
                                          "nested: {api_key: s3cret-three}}\n");
  auto done = run_isogate({"config", "show", config});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  Json shown = Json::parse(done.out);
  EXPECT_EQ(shown.at("instance"), "demo");
  EXPECT_EQ(done.out.find("s3cret"), std::string::npos) << done.out;
  EXPECT_EQ(done.out.find(hash), std::string::npos);
  EXPECT_NE(done.out.find("\"C\""), std::string::npos);
}

TEST(ConfigCommand, SchemaIsJsonAndDocsAreMarkdown) {
  auto schema = run_isogate({"config", "schema"});
  EXPECT_EQ(schema.exit_code, 0);
  EXPECT_TRUE(Json::parse(schema.out).at("properties").contains("listen"));
  auto docs = run_isogate({"config", "docs"});
  EXPECT_EQ(docs.exit_code, 0);
  EXPECT_NE(docs.out.find("require_remote"), std::string::npos);
}

}  // namespace
}  // namespace isogate::test
