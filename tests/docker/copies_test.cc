// Mounts, copies and platforms, through a real gateway on a real Engine.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Caller;
using test::Gateway;
using test::TemporaryDirectory;
using testing::HasSubstr;
using testing::Not;

class Copies : public OnEngine {
 protected:
  Copies() : source_("/var/tmp") {
    ::chmod(source_.path().c_str(), 0755);
    std::filesystem::create_directory(source_.path() + "/lib");
    source_.file("lib/a.txt", "hello", 0600);
    source_.file("lib/a.pyc", "compiled");
    source_.file("run.sh", "#!/bin/sh\necho it runs\n", 0700);
    EXPECT_EQ(::symlink("lib/a.txt", (source_.path() + "/link").c_str()), 0);
  }
  std::string copies(const std::string& more = {}, const std::string& target = "/opt/tools") {
    return "copies: [{source: " + source_.path() + ", target: " + target + ", exclude: [\"*.pyc\"]" + more +
           "}]";
  }
  TemporaryDirectory source_;
};

TEST_F(Copies, ATreeArrivesReadableAndReadOnlyAndGoesWithTheContainer) {
  Gateway gateway(options(copies()));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("cd /opt/tools && cat link && ./run.sh && readlink link && ls lib"),
            "helloit runs\nlib/a.txt\na.txt\n");
  EXPECT_EQ(me.out("stat -c '%u:%g %a' /opt/tools /opt/tools/lib/a.txt /opt/tools/run.sh"),
            "0:0 555\n0:0 444\n0:0 555\n");
  EXPECT_NE(me.run("touch /opt/tools/x").at("exit_code"), 0);
  EXPECT_NE(me.run("echo x > /opt/tools/lib/a.txt").at("exit_code"), 0);
  EXPECT_NE(me.run("chmod u+w /opt/tools").at("exit_code"), 0);
  EXPECT_EQ(volumes(), 1u) << "labelled";
  const Json container = only("sandbox");
  for (const Json& mount : container.at("Mounts"))
    EXPECT_TRUE(mount.at("Destination") != "/opt/tools" || mount.at("Type") == "volume") << "never a mount";
  source_.file("lib/later.txt", "too late");
  EXPECT_NE(me.run("cat /opt/tools/lib/later.txt").at("exit_code"), 0);
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(volumes(), 0u);
}

TEST_F(Copies, AWritableOneIsTheSandboxsOwnAndFreshInEachContainer) {
  Gateway gateway(options(copies(", writable: true")));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("cd /opt/tools && echo more >> lib/a.txt && rm run.sh && touch new && cat lib/a.txt"),
            "hellomore\n");
  EXPECT_THAT(me.get("/backends").text, HasSubstr("/opt/tools may be changed by programs"));
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(me.out("cat /opt/tools/lib/a.txt; ls /opt/tools"), "hellolib\nlink\nrun.sh\n");
}

TEST_F(Copies, AFileIsAddedToWhatTheImageHasThere) {
  const std::string file = source_.file("motd", "welcome\n");
  Gateway gateway(options("copies: [{source: " + file + ", target: /etc/default/isogate-motd}, {source: " +
                          file + ", target: /opt/new/place/motd}]"));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("cat /etc/default/isogate-motd /opt/new/place/motd"), "welcome\nwelcome\n");
  EXPECT_NE(me.run("echo x > /etc/default/isogate-motd").at("exit_code"), 0);
  EXPECT_NE(me.run("rm -f /opt/new/place/motd").at("exit_code"), 0);
  EXPECT_NE(me.out("ls /etc/default | wc -l"), "1\n") << "the image's own files are there, too";
}

TEST_F(Copies, TheyArriveWhereWorkspacesAreVolumes) {
  Gateway gateway(options(copies() + ", workspace: volume"));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("cat /opt/tools/link"), "hello");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(volumes(), 1u) << "the runner's alone";
}

TEST_F(Copies, ALargeTreeIsStreamed) {
  for (int i = 0; i < 64; ++i) source_.file("lib/" + std::to_string(i), test::noise(1 << 20, i));
  Gateway gateway(options(copies()));
  EXPECT_EQ(Caller(gateway, "a").out("cat /opt/tools/lib/63 | sha256sum | cut -c1-64"),
            test::sha256_hex(test::noise(1 << 20, 63)) + "\n");
}

TEST_F(Copies, WhatCannotBeCopiedIsRefusedAndOnlyTheLogHasItsPath) {
  ASSERT_EQ(::symlink("/etc/passwd", (source_.path() + "/bad").c_str()), 0);
  Gateway gateway(options(copies()));
  const std::string told = refusal_of(Caller(gateway, "a"));
  EXPECT_THAT(told, HasSubstr("/opt/tools"));
  EXPECT_THAT(told, Not(HasSubstr(source_.path())));
  EXPECT_THAT(gateway.log(), HasSubstr(source_.path() + "/bad"));
  EXPECT_TRUE(containers("sandbox").empty()) << "none is left half made";
  EXPECT_EQ(volumes(), 0u);
  ::unlink((source_.path() + "/bad").c_str());
  EXPECT_EQ(Caller(gateway, "a").out("cat /opt/tools/link"), "hello")
      << "and the next call works once it is repaired";
}

TEST_F(Copies, AMissingSourceMakesTheBackendUnavailableWithItsName) {
  test::GatewayOptions absent = options("copies: [{source: /var/tmp/no-such-tree, target: /opt/tools}]");
  absent.wait_ready = false;
  Gateway gateway(absent);
  EXPECT_THAT(detail_of(gateway), HasSubstr("/var/tmp/no-such-tree"));
  EXPECT_FALSE(Caller(gateway, "a").exec("true").status == 200);
}

TEST_F(Copies, MoreThanTheLimitIsRefused) {
  source_.file("big", std::string(2 << 20, 'x'));
  Gateway gateway(options(copies() + ", copies_max_mb: 1"));
  (void)refusal_of(Caller(gateway, "a"));
  EXPECT_THAT(gateway.log(), HasSubstr("copies_max_mb is reached"));
}

TEST_F(Copies, ChangedCopiesRecreateAKeptContainer) {
  const std::string before = left_by(lasting(copies(), "on_shutdown: keep"), "true");
  Gateway again(lasting(copies({}, "/opt/elsewhere")));
  EXPECT_EQ(Caller(again, "a").out("cat /opt/elsewhere/link; ls /opt"), "helloelsewhere\n");
  EXPECT_NE(only("sandbox").at("Id"), before);
}

using Mounts = Copies;

TEST_F(Mounts, AreReadOnlyAndLive) {
  Gateway gateway(options("mounts: [{source: " + source_.path() + ", target: /data}]"));
  const Caller me(gateway, "a");
  me.run("true");
  source_.file("later.txt", "in time");
  EXPECT_EQ(me.out("cat /data/later.txt"), "in time");
  EXPECT_NE(me.run("touch /data/x").at("exit_code"), 0);
}

TEST_F(Mounts, ALinkIsRefusedWithItsPathAtTheStart) {
  TemporaryDirectory other("/var/tmp");
  const std::string alias = other.path() + "/alias";
  ASSERT_EQ(::symlink(source_.path().c_str(), alias.c_str()), 0);
  for (const std::string& source : {alias, alias + "/lib"}) {
    test::GatewayOptions linked = options("mounts: [{source: " + source + ", target: /data}]");
    linked.wait_ready = false;
    Gateway gateway(linked);
    const std::string backends = detail_of(gateway);
    EXPECT_THAT(backends, HasSubstr(source));
    EXPECT_THAT(backends, HasSubstr("symlink"));
  }
}

TEST_F(Mounts, ALinkThatCameLaterIsRefusedWhenAContainerIsMade) {
  TemporaryDirectory other("/var/tmp");
  const std::string place = other.path() + "/place";
  std::filesystem::create_directory(place);
  Gateway gateway(options("mounts: [{source: " + place + ", target: /data}]"));
  Caller(gateway, "a").run("true");
  std::filesystem::remove(place);
  ASSERT_EQ(::symlink("/etc", place.c_str()), 0);
  const std::string told = refusal_of(Caller(gateway, "b"));
  EXPECT_THAT(told, HasSubstr("`/data`"));
  EXPECT_THAT(told, Not(HasSubstr(place)));
  EXPECT_THAT(gateway.log(), HasSubstr(place));
}

TEST_F(Mounts, AMissingOneIsReportedBeforeTheFirstCall) {
  const std::string missing = source_.path() + "/missing";
  test::GatewayOptions absent =
      options("mounts: [{source: " + missing + ", target: /data}]", "probe_interval_sec: 1");
  absent.wait_ready = false;
  Gateway gateway(absent);
  EXPECT_THAT(detail_of(gateway), HasSubstr("cannot mount `" + missing + "` to /data"));
  EXPECT_THAT(refusal_of(Caller(gateway, "a")), HasSubstr(missing));
  EXPECT_NE(::access(missing.c_str(), F_OK), 0) << "nor is it created";
  std::filesystem::create_directory(missing);
  EXPECT_TRUE(test::eventually(20, [&] { return Caller(gateway, "a").exec("ls -d /data").status == 200; }));
}

TEST_F(Mounts, OneThatIsGoneLaterIsRefusedWithItsTarget) {
  const std::string place = source_.path() + "/place";
  std::filesystem::create_directory(place);
  Gateway gateway(options("mounts: [{source: " + place + ", target: /data}]"));
  std::filesystem::remove(place);
  const std::string told = refusal_of(Caller(gateway, "a"));
  EXPECT_THAT(told, HasSubstr("`/data`"));
  EXPECT_THAT(told, Not(HasSubstr(place)));
  EXPECT_THAT(gateway.log(), HasSubstr("cannot mount `" + place));
}

TEST_F(Mounts, AMissingOneIsTheEnginesToRefuseWhereItMaySeeOtherDirectories) {
  const std::string missing = source_.path() + "/missing";
  Gateway gateway(options("workspace: volume, mounts: [{source: " + missing + ", target: /data}]"));
  const std::string told = refusal_of(Caller(gateway, "a"));
  EXPECT_THAT(told, HasSubstr("/data"));
  EXPECT_THAT(told, Not(HasSubstr(missing)));
  EXPECT_THAT(gateway.log(), HasSubstr(missing));
  EXPECT_NE(::access(missing.c_str(), F_OK), 0) << "nor is it created";
  std::filesystem::create_directory(missing);
  EXPECT_EQ(Caller(gateway, "a").out("ls -d /data"), "/data\n");
}

// What podman's API does differently from Docker is refused, not done in part.
class OnPodman : public OnEngine {
 protected:
  OnPodman() : OnEngine("ISOGATE_TEST_PODMAN", "podman.sh") { image_ = "isogate-test:small"; }
};

TEST_F(OnPodman, CopiesAndInternalNetworksAreRefusedWithTheRemedy) {
  TemporaryDirectory source("/var/tmp");
  for (const std::string& config :
       {"copies: [{source: " + source.path() + ", target: /opt/tools}]", std::string("network: internal")}) {
    test::GatewayOptions here = options(config);
    here.wait_ready = false;
    Gateway gateway(here);
    EXPECT_THAT(detail_of(gateway), HasSubstr("needs a Docker Engine"));
  }
}

using Platform = OnEngine;

TEST_F(Platform, TheImagesOwnIsTaken) {
  const std::string own = engine_->inspect_image("isogate-test:base", usual()).at("Architecture");
  Gateway gateway(options("platform: linux/" + own));
  EXPECT_EQ(Caller(gateway, "a").out("echo fine"), "fine\n");
}

TEST_F(Platform, AnotherOneIsRefusedWithBoth) {
  test::GatewayOptions other = options("platform: linux/s390x");
  other.wait_ready = false;
  Gateway gateway(other);
  const std::string backends = detail_of(gateway);
  EXPECT_THAT(backends, HasSubstr("`platform` is linux/s390x"));
  EXPECT_THAT(backends, HasSubstr("the image `isogate-test:base` is for linux/"));
}

TEST_F(Platform, TheEngineIsToldOfItToo) {
  const Failure failure = failure_of([&] {
    made_.push_back(engine_->create_container(
        new_name(), {{"Image", "isogate-test:small"}, {"Cmd", {"true"}}}, usual(), "linux/s390x"));
  });
  EXPECT_NE(failure.status, ISOGATE_OK);
  EXPECT_THAT(failure.message, HasSubstr("platform"));
}

}  // namespace
}  // namespace isogate::docker
