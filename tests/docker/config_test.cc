#include "plugins/docker/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"

namespace isogate::docker {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const std::string& json) {
  try {
    (void)parse_config(json);
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), ISOGATE_INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

TEST(DockerConfig, IsStrictWhereNothingIsSaid) {
  const Config config = parse_config("");
  EXPECT_EQ(config.memory_mb, 512u);
  EXPECT_EQ(config.cpus, 1.0);
  EXPECT_EQ(config.pids, 256u);
  EXPECT_EQ(config.tmp_mb, 64u);
  EXPECT_TRUE(config.read_only);
  EXPECT_FALSE(config.network);
  EXPECT_THAT(relaxations_of(config), IsEmpty());
}

TEST(DockerConfig, TheSchemaIsJsonAndNamesTheSameDefaults) {
  const auto schema = nlohmann::json::parse(kConfigSchema);
  const Config config;
  const auto& properties = schema.at("properties");
  EXPECT_EQ(properties.at("memory_mb").at("default"), config.memory_mb);
  EXPECT_EQ(properties.at("cpus").at("default"), config.cpus);
  EXPECT_EQ(properties.at("pids").at("default"), config.pids);
  EXPECT_EQ(properties.at("tmp_mb").at("default"), config.tmp_mb);
  EXPECT_EQ(properties.at("shm_mb").at("default"), config.shm_mb);
  EXPECT_EQ(properties.at("image").at("default"), config.image);
  EXPECT_EQ(properties.at("read_only").at("default"), config.read_only);
  EXPECT_EQ(properties.at("copies_max_mb").at("default"), config.copies_max_mb);
  EXPECT_EQ(properties.at("copies_max_entries").at("default"), config.copies_max_entries);
  const Companion companion;
  const Healthcheck check;
  const auto& theirs = properties.at("companions").at("items").at("properties");
  EXPECT_EQ(theirs.at("memory_mb").at("default"), companion.memory_mb);
  EXPECT_EQ(theirs.at("cpus").at("default"), companion.cpus);
  EXPECT_EQ(theirs.at("pids").at("default"), companion.pids);
  EXPECT_EQ(theirs.at("read_only").at("default"), companion.read_only);
  const auto& tests = theirs.at("healthcheck").at("properties");
  EXPECT_EQ(tests.at("interval_sec").at("default"), check.interval_sec);
  EXPECT_EQ(tests.at("timeout_sec").at("default"), check.timeout_sec);
  EXPECT_EQ(tests.at("retries").at("default"), check.retries);
  EXPECT_EQ(tests.at("start_period_sec").at("default"), check.start_period_sec);
}

TEST(DockerConfig, ListsEveryRelaxationInWords) {
  const Config config = parse_config(R"({"memory_mb": 0, "cpus": 2.5, "pids": 1000, "read_only": false,
    "network": "dedicated",
    "mounts": [{"source": "/srv/data", "target": "/data"},
               {"source": "/srv/out", "target": "/out", "read_only": false}]})");
  const auto found = relaxations_of(config);
  EXPECT_THAT(found, Contains(HasSubstr("all memory")));
  EXPECT_THAT(found, Contains("cpus is 2.5, not 1"));
  EXPECT_THAT(found, Contains("pids is 1000, not 256"));
  EXPECT_THAT(found, Contains(HasSubstr("root file system is writable")));
  EXPECT_THAT(found, Contains(HasSubstr("network with a way out")));
  EXPECT_THAT(found, Contains(HasSubstr("read /srv/data")));
  EXPECT_THAT(found, Contains(HasSubstr("write to /srv/out")));
  EXPECT_EQ(found.size(), 7u);
}

TEST(DockerConfig, TakesTheEnvironmentUnchanged) {
  const Config config = parse_config(R"({"env": {"A": "1", "B": ""}, "network": "internal",
    "companions": [{"name": "db", "image": "i", "env": {"MODE": "strict"}}]})");
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(config.env, (Pairs{{"A", "1"}, {"B", ""}}));
  EXPECT_EQ(config.companions.at(0).env, (Pairs{{"MODE", "strict"}}));
}

TEST(DockerConfig, RefusesMountsThatAreInConflict) {
  const auto two = [](const std::string& a, const std::string& b) {
    return refusal(R"({"mounts": [{"source": "/a", "target": ")" + a + R"("}, {"source": "/b", "target": ")" +
                   b + R"("}]})");
  };
  EXPECT_THAT(two("/data", "/data"), HasSubstr("conflict"));
  EXPECT_THAT(two("/data", "/data/inner"), HasSubstr("conflict"));
  EXPECT_THAT(two("/data/inner", "/data"), HasSubstr("conflict"));
  EXPECT_EQ(two("/data", "/database"), "");
}

TEST(DockerConfig, RefusesTargetsThatItFillsItself) {
  for (const char* target :
       {"/workspace", "/workspace/a", "/run", "/run/isogate", "/run/isogate/bin", "/proc/x", "/sys",
        "/dev/shm", "/tmp", "/tmp/a", "/", "relative", "/a/../b", "/a//b", "/a/", "/./a"}) {
    EXPECT_NE(refusal(std::string(R"({"mounts": [{"source": "/a", "target": ")") + target + R"("}]})"), "")
        << target;
  }
}

std::string copies(const std::string& members) {
  return refusal(R"({"copies": [{"source": "/srv/tools", )" + members + "}]}");
}

TEST(DockerConfig, RefusesCopiesThatAreInConflict) {
  EXPECT_EQ(copies(R"("target": "/opt/tools")"), "");
  for (const char* target : {"/workspace", "/workspace/a", "/run", "/tmp/a", "/proc", "relative", "/a/../b"})
    EXPECT_THAT(copies(std::string(R"("target": ")") + target + "\""), HasSubstr("copy target")) << target;
  EXPECT_THAT(copies(R"("target": "/etc/hosts")"), HasSubstr("the Engine writes itself"));
  EXPECT_THAT(copies(R"("target": "/opt/a"}, {"source": "/b", "target": "/opt/a/b")"), HasSubstr("conflict"));
  EXPECT_THAT(refusal(R"({"mounts": [{"source": "/a", "target": "/opt"}],
                          "copies": [{"source": "/a", "target": "/opt/b"}]})"),
              HasSubstr("conflict"));
  EXPECT_THAT(refusal(R"({"copies": [{"source": "/a/../b", "target": "/opt/b"}]})"),
              HasSubstr("copy source"));
  EXPECT_THAT(copies(R"("target": "/opt/a", "exclude": ["!keep"])"), HasSubstr("taken back in"));
}

TEST(DockerConfig, NothingMeetsTheSharedDirectories) {
  const Config config = parse_config(R"({"mounts": [{"source": "/a", "target": "/mnt/data/inner"}]})");
  EXPECT_THROW(check_shared(config, "data"), sdk::Error);
  EXPECT_NO_THROW(check_shared(config, "dat"));
}

std::string companion(const std::string& members, const std::string& network = "internal") {
  return refusal(R"({"network": ")" + network + R"(", "companions": [{"name": "db", "image": "i")" + members +
                 "}]}");
}

TEST(DockerConfig, RefusesCompanionsThatCannotBe) {
  EXPECT_EQ(companion(""), "");
  EXPECT_EQ(companion("", "dedicated"), "");
  EXPECT_THAT(companion("", "none"), HasSubstr("set it to internal"));
  EXPECT_THAT(companion(R"(, "post_start": {"command": ["x"]})"), HasSubstr("give it a healthcheck"));
  EXPECT_EQ(companion(R"(, "post_start": {"command": ["x"]}, "healthcheck": {"test": ["y"]})"), "");
  EXPECT_THAT(companion(R"(}, {"name": "db", "image": "j")"), HasSubstr("taken"));
  EXPECT_THAT(companion(R"(}, {"name": "sandbox", "image": "j")"), HasSubstr("taken"));
  EXPECT_THAT(companion(R"(}, {"name": "d b", "image": "j")"), HasSubstr("a-z"));
  EXPECT_THAT(companion(R"(, "memory_mb": 8)"), HasSubstr("memory_mb of companion `db`"));
  for (const char* path : {"relative", "/a/../b", "/a:rw", "/proc/x", "/"})
    EXPECT_THAT(companion(std::string(R"(, "tmpfs": [")") + path + "\"]"), HasSubstr("tmpfs")) << path;
}

TEST(DockerConfig, AnInternalNetworkIsNoRelaxationAndWhatCompanionsLackIs) {
  EXPECT_THAT(
      relaxations_of(parse_config(R"({"network": "internal", "companions": [{"name": "db", "image": "i"}],
                                              "copies": [{"source": "/a", "target": "/opt/a"}]})")),
      IsEmpty());
  const auto found = relaxations_of(parse_config(R"({"network": "internal", "companions": [{"name": "db",
      "image": "i", "user": "root", "read_only": false, "memory_mb": 1024, "pids": 0}],
      "copies": [{"source": "/a", "target": "/opt/a", "writable": true}]})"));
  EXPECT_THAT(found, Contains("the companion `db` runs as root, not as its sandbox's user"));
  EXPECT_THAT(found, Contains("the root file system of the companion `db` is writable"));
  EXPECT_THAT(found, Contains("memory_mb of the companion `db` is 1024, not 512"));
  EXPECT_THAT(found, Contains("the companion `db` may start any number of processes"));
  EXPECT_THAT(found, Contains("what is copied to /opt/a may be changed by programs"));
  EXPECT_EQ(found.size(), 5u);
}

TEST(DockerConfig, RefusesAnEnginesSocketAsMount) {
  for (const char* source :
       {"/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"})
    EXPECT_THAT(refusal(std::string(R"({"mounts": [{"source": ")") + source + R"(", "target": "/s"}]})"),
                HasSubstr("whole machine"));
}

TEST(DockerConfig, RefusesAMountOfWhatIsAboveAnEnginesSocket) {
  for (const char* source : {"/", "/run", "/var", "/var/run", "/run/user/1000", "/run/podman", "/run/docker"})
    EXPECT_THAT(refusal(std::string(R"({"mounts": [{"source": ")") + source + R"(", "target": "/s"}]})"),
                HasSubstr("whole machine"))
        << source;
  EXPECT_THAT(
      refusal(R"({"host": "unix:///srv/engine/sock", "mounts": [{"source": "/srv", "target": "/s"}]})"),
      HasSubstr("`/srv` is or holds an engine's socket, /srv/engine/sock"));
  EXPECT_EQ(refusal(R"({"mounts": [{"source": "/run/lock", "target": "/s"}]})"), "");
}

TEST(DockerConfig, RefusesWhatNothingFitsInto) {
  EXPECT_THAT(refusal(R"({"memory_mb": 8})"), HasSubstr("memory_mb"));
  EXPECT_THAT(refusal(R"({"pids": 4})"), HasSubstr("pids"));
  EXPECT_THAT(refusal(R"({"cpus": 0.001})"), HasSubstr("cpus"));
  EXPECT_THAT(refusal("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(refusal(R"({"cpus": "many"})"), HasSubstr("schema"));
  EXPECT_THAT(refusal(R"({"host": "unix:///x", "tls": {"ca": "/a", "certificate": "/b", "key": "/c"}})"),
              HasSubstr("tcp://"));
}

}  // namespace
}  // namespace isogate::docker
