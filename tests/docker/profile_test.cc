#include "plugins/docker/container/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

Parts some_parts() {
  Parts parts;
  parts.owner = {"instance", "docker", "isg-aaaaaaaaaaaaaaaaaaaaaaaaaa"};
  parts.tenant = "t";
  parts.agent_id = "a";
  parts.uid = parts.gid = 12345;
  parts.workspace = "/state/w";
  parts.runner = "/usr/lib/isogate/isogate-runner";
  parts.gate = "/state/g";
  parts.shared = {{"data", "/srv/data"}};
  return parts;
}

const Json* mount_at(const Json& container, const std::string& target) {
  for (const Json& each : container.at("HostConfig").at("Mounts"))
    if (each.at("Target") == target) return &each;
  return nullptr;
}

TEST(DockerProfile, HardensByDefault) {
  const Config config;
  const Json container = container_of(config, some_parts(), limits_of(config, {}));
  const Json& host = container.at("HostConfig");
  EXPECT_EQ(host.at("CapDrop"), Json({"ALL"}));
  EXPECT_FALSE(host.contains("CapAdd"));
  EXPECT_EQ(host.at("SecurityOpt"), Json({"no-new-privileges"}));
  for (const char* path : {"/proc/interrupts", "/proc/kcore", "/proc/keys", "/sys/devices/virtual/powercap"})
    EXPECT_THAT(host.at("MaskedPaths"), testing::Contains(path));
  EXPECT_EQ(host.at("NetworkMode"), "none");
  EXPECT_EQ(host.at("ReadonlyRootfs"), true);
  EXPECT_EQ(host.at("Privileged"), false);
  EXPECT_EQ(host.at("Memory"), 512u << 20);
  EXPECT_EQ(host.at("MemorySwap"), 512u << 20);
  EXPECT_EQ(host.at("NanoCpus"), 1000000000u);
  EXPECT_EQ(host.at("PidsLimit"), 256u);
  EXPECT_EQ(container.at("User"), "12345:12345");
  EXPECT_EQ(host.at("LogConfig").at("Type"), "none");
  for (const char* absent :
       {"Binds", "Devices", "PidMode", "UsernsMode", "VolumesFrom", "Links", "Dns", "DnsOptions"})
    EXPECT_FALSE(host.contains(absent)) << absent;
}

TEST(DockerProfile, MountsWhatIsNeededAndAllButTheWorkspaceReadOnly) {
  const Config config;
  const Json container = container_of(config, some_parts(), limits_of(config, {}));
  EXPECT_EQ(container.at("HostConfig").at("Mounts").size(), 4u);
  ASSERT_TRUE(mount_at(container, "/workspace"));
  EXPECT_EQ(mount_at(container, "/workspace")->at("ReadOnly"), false);
  for (const char* target : {"/run/isogate/bin/isogate-runner", "/run/isogate/gate", "/mnt/data"}) {
    ASSERT_TRUE(mount_at(container, target)) << target;
    EXPECT_EQ(mount_at(container, target)->at("ReadOnly"), true) << target;
    EXPECT_EQ(mount_at(container, target)->at("BindOptions").at("Propagation"), "rprivate") << target;
  }
}

TEST(DockerProfile, WhatIsAskedForASandboxGoesBeforeTheConfiguration) {
  const Config config;
  Limits asked;
  asked.set(ISOGATE_LIMIT_MEMORY_BYTES, 64u << 20);
  const Limits limits = limits_of(config, asked);
  EXPECT_EQ(limits.get(ISOGATE_LIMIT_MEMORY_BYTES), 64u << 20);
  EXPECT_EQ(limits.get(ISOGATE_LIMIT_CPU_MILLIS), 1000u);
  EXPECT_EQ(limits.get(ISOGATE_LIMIT_PIDS), 256u);
  const auto tmp = [&config](const Limits& of) {
    return container_of(config, some_parts(), of).at("HostConfig").at("Tmpfs").at("/tmp").get<std::string>();
  };
  EXPECT_THAT(tmp(limits), testing::HasSubstr(",size=32m,")) << "half of the memory that it counts in";
  EXPECT_THAT(tmp(limits_of(config, {})), testing::EndsWith(",size=64m,nr_inodes=65536"));
}

TEST(DockerProfile, LimitsThatAreNotInForceAreNamed) {
  const Config config;
  const Limits asked = limits_of(config, {});
  const auto difference = [&](const Json& change, bool no_swap = false) {
    Json host = container_of(config, some_parts(), asked).at("HostConfig");
    host.update(change);
    return difference_of(asked, engine_limits(Json{{"HostConfig", host}}), no_swap);
  };
  EXPECT_EQ(difference(Json::object()), "");
  EXPECT_EQ(difference({{"MemorySwap", -1}}), "MemorySwap is -1 in place of 536870912");
  EXPECT_EQ(difference({{"MemorySwap", -1}}, true), "");
  EXPECT_EQ(difference({{"MemorySwap", 1u << 30}}, true), "MemorySwap is 1073741824 in place of 536870912");
  EXPECT_EQ(difference({{"NanoCpus", 0}, {"PidsLimit", nullptr}}),
            "NanoCpus is 0 in place of 1000000000, PidsLimit is 0 in place of 256");
  EXPECT_NE(difference_of(asked, engine_limits(Json::object()), true), "");
  EXPECT_EQ(difference_of({}, engine_limits(Json{{"HostConfig", {{"PidsLimit", 2048}}}}), false), "")
      << "an Engine may limit what was not asked for";
}

TEST(DockerProfile, PodmanMasksTheSamePaths) {
  const Config config;
  Parts parts = some_parts();
  parts.podman = true;
  const Json container = container_of(config, parts, limits_of(config, {})).at("HostConfig");
  EXPECT_FALSE(container.contains("MaskedPaths"));
  EXPECT_THAT(container.at("SecurityOpt").dump(), testing::HasSubstr("mask=/proc/kcore:/proc/acpi:"));
}

TEST(DockerProfile, VolumesStandInForDirectories) {
  Parts parts = some_parts();
  parts.bind = false;
  parts.gate.clear();
  parts.shared.clear();
  const Config config;
  const Json container = container_of(config, parts, limits_of(config, {}));
  EXPECT_EQ(mount_at(container, "/workspace")->at("Type"), "volume");
  EXPECT_EQ(mount_at(container, "/run/isogate/bin")->at("ReadOnly"), true);
  EXPECT_EQ(container.at("Entrypoint"), Json({"/run/isogate/bin/isogate-runner", "idle", "--disk-limit",
                                              "1073741824", "--disk-bound", "counted"}));
}

TEST(DockerProfile, CopiesHaveVolumesWithoutANameThatAreLabelled) {
  Parts parts = some_parts();
  parts.copies = {{"/opt/tools", false}, {"/etc/app", true}};
  const Config config;
  const Json container = container_of(config, parts, limits_of(config, {}));
  const Json* tools = mount_at(container, "/opt/tools");
  ASSERT_TRUE(tools);
  EXPECT_EQ(tools->at("Type"), "volume");
  EXPECT_FALSE(tools->contains("Source"));
  EXPECT_EQ(tools->at("VolumeOptions").at("NoCopy"), true);
  EXPECT_TRUE(carries(tools->at("VolumeOptions").at("Labels"), parts.owner));
  EXPECT_EQ(mount_at(container, "/etc/app")->at("VolumeOptions").at("NoCopy"), false);
}

TEST(DockerProfile, WhatPodmanAddsToAReadOnlyRootCannotBeWritten) {
  Parts parts = some_parts();
  Config config;
  const auto places = [&] {
    std::vector<std::string> names;
    const Json made = container_of(config, parts, Limits{});
    for (const auto& [name, how] : made.at("HostConfig").at("Tmpfs").items()) names.push_back(name);
    return names;
  };
  EXPECT_EQ(places(), std::vector<std::string>({"/tmp"}));
  parts.podman = true;
  EXPECT_EQ(places(), std::vector<std::string>({"/run", "/tmp", "/var/tmp"}));
  config.mounts = {{"/srv/a", "/var/tmp/a", true}};
  EXPECT_EQ(places(), std::vector<std::string>({"/run", "/tmp"})) << "a mount point cannot be created in it";
  config.read_only = false;
  EXPECT_EQ(places(), std::vector<std::string>({"/tmp"}));
}

TEST(DockerProfile, ACompanionIsHardenedAsASandboxIs) {
  Parts parts = some_parts();
  parts.network = "n";
  Config config;
  config.network = config.internal = true;
  Companion companion;
  companion.name = "db";
  companion.image = "postgres";
  companion.tmpfs = {"/var/lib/db"};
  const Json made = container_of(config, parts, companion);
  const Json& host = made.at("HostConfig");
  EXPECT_EQ(host.at("CapDrop"), Json({"ALL"}));
  EXPECT_EQ(host.at("SecurityOpt"), Json({"no-new-privileges"}));
  EXPECT_EQ(host.at("ReadonlyRootfs"), true);
  EXPECT_EQ(host.at("Memory"), 512u << 20);
  EXPECT_EQ(host.at("NetworkMode"), "n");
  EXPECT_EQ(host.at("Dns"), Json({"127.0.0.1"}));
  EXPECT_EQ(host.at("DnsOptions"), Json({"timeout:1", "attempts:1"}));
  EXPECT_TRUE(host.at("Tmpfs").contains("/var/lib/db"));
  EXPECT_FALSE(host.contains("Mounts"));
  EXPECT_EQ(made.at("User"), "12345:12345");
  EXPECT_EQ(made.at("Healthcheck").at("Test"), Json({"NONE"}));
  EXPECT_EQ(made.at("NetworkingConfig").at("EndpointsConfig").at("n").at("Aliases"), Json({"db"}));
  EXPECT_FALSE(made.contains("Cmd"));
}

TEST(DockerProfile, TheDigestCoversCopiesAndCompanions) {
  const Parts parts = some_parts();
  const auto digest = [&](const Config& config) { return profile_digest(config, parts, {}); };
  std::vector<Config> all(8);
  for (size_t i = 2; i < all.size(); ++i) all[i].network = true;
  for (size_t i = 3; i < all.size(); ++i) all[i].internal = true;
  for (size_t i = 4; i < all.size(); ++i) all[i].copies = {{"/srv/a", "/opt/a", {}, false}};
  for (size_t i = 5; i < all.size(); ++i) all[i].copies[0].exclude = {"*.o"};
  for (size_t i = 6; i < all.size(); ++i) all[i].companions.resize(1);
  all[7].companions[0].healthcheck = Healthcheck{{"true"}, 1, 2, 3, 4};
  all[1].platform = "linux/arm64";
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(digest(all[i]), digest(all[j])) << i << " " << j;
  Parts placed = parts;
  placed.copies = {{"/opt/a", true}};
  placed.network = "its id";
  EXPECT_EQ(profile_digest(all[4], placed, {}), digest(all[4]))
      << "the digest excludes what is known only later";
}

TEST(DockerProfile, OnlyAnOwnersOwnLabelsAreItsOwn) {
  const Owner owner{"i", "b", "s"};
  EXPECT_TRUE(carries(labels_of(owner, "sandbox"), owner));
  EXPECT_FALSE(carries(labels_of({"i", "b", "other"}, "sandbox"), owner));
  EXPECT_FALSE(carries(labels_of({"j", "b", "s"}, "sandbox"), owner));
  EXPECT_FALSE(carries(Json::object(), owner));
  EXPECT_FALSE(carries(Json(), owner));
  EXPECT_FALSE(carries(Json({{"io.isogate.instance", 1}}), owner));
}

}  // namespace
}  // namespace isogate::docker
