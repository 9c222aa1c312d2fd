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
}

TEST(DockerConfig, ListsEveryRelaxationInWords) {
  const Config config = parse_config(R"({"memory_mb": 0, "cpus": 2.5, "pids": 1000, "read_only": false,
    "network": "dedicated", "host": "tcp://10.0.0.1:2375",
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
  EXPECT_THAT(found, Contains(HasSubstr("without TLS")));
  EXPECT_EQ(found.size(), 8u);
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

TEST(DockerConfig, RefusesAnEnginesSocketAsMount) {
  for (const char* source :
       {"/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"})
    EXPECT_THAT(refusal(std::string(R"({"mounts": [{"source": ")") + source + R"(", "target": "/s"}]})"),
                HasSubstr("whole machine"));
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
