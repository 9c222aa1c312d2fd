// The seccomp profile of containers: what it refuses in a real one, and what happens to one without it.
#include "plugins/docker/container/seccomp.h"

#include <gmock/gmock.h>

#include <set>

#include "runner/enclosure/syscall_policy.h"
#include "tests/docker/gateways.h"
#include "tests_dirs.h"

namespace isogate::docker {
namespace {

using test::Caller;
using test::Gateway;
using testing::HasSubstr;

class Seccomp : public OnEngine {
 protected:
  static std::string with_tool(const std::string& more = {}) {
    return "mounts: [{source: " ISOGATE_BUILD_DIR
           "/bin/refused_calls"
           ", target: /opt/refused_calls}]" +
           (more.empty() ? "" : ", " + more);
  }
};

TEST_F(Seccomp, WhatTheTableRefusesIsRefusedInAContainer) {
  Gateway gateway(options(with_tool()));
  EXPECT_EQ(Caller(gateway, "a").out("/opt/refused_calls"), "");
}

TEST_F(Seccomp, TheEnginesOwnProfileIsARelaxationThatIsNamed) {
  Gateway gateway(options(with_tool("seccomp_profile: engine")));
  const Caller me(gateway, "a");
  me.run("true");
  EXPECT_THAT(me.get("/backends").text, HasSubstr("seccomp profile is the Engine's own"));
  EXPECT_EQ(only("sandbox").at("HostConfig").at("SecurityOpt"), Json({"no-new-privileges"}));
}

TEST_F(Seccomp, ProgramsOfEveryDayRun) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  EXPECT_EQ(
      me.out("git init -q r && cd r && git -c user.name=a -c user.email=b commit -q --allow-empty -m c && "
             "git log --format=%s"),
      "c\n");
  EXPECT_EQ(
      me.out(
          "python3 -c 'import threading, subprocess, socket\nt = threading.Thread(target=print, args=(1,))\n"
          "t.start()\nt.join()\nsocket.socketpair()\nprint(subprocess.check_output([\"echo\", \"x\"]))'"),
      "1\nb'x\\n'\n");
  EXPECT_EQ(me.out("mkfifo f && (echo through > f &) && cat f; sync && echo synced"), "through\nsynced\n");
}

TEST(SeccompProfile, HasNoRuleForOtherArchitecturesAndAllowsNothingTwice) {
  const Json profile = make_seccomp_profile();
  EXPECT_EQ(profile.at("defaultAction"), "SCMP_ACT_ERRNO");
  for (const Json& each : profile.at("archMap")) EXPECT_EQ(each.at("subArchitectures"), Json::array());
  std::set<std::string> plain;
  for (const Json& rule : profile.at("syscalls")) {
    if (rule.contains("args")) continue;
    for (const Json& name : rule.at("names")) EXPECT_TRUE(plain.insert(name).second) << name;
  }
  for (const Json& rule : profile.at("syscalls")) {
    if (!rule.contains("args")) continue;
    for (const Json& name : rule.at("names")) EXPECT_FALSE(plain.contains(name)) << name;
    for (const Json& all : rule.at("args")) EXPECT_EQ(all.at("op"), "SCMP_CMP_MASKED_EQ");
  }
  for (const char* never : {"ptrace", "mount", "unshare", "modify_ldt", "name_to_handle_at"})
    EXPECT_FALSE(plain.contains(never)) << never;
}

// Every number is allowed except the refused ones, compared in their low 32 bits.
TEST(SeccompProfile, ComparesTheLowHalfOfAnArgument) {
  const Json profile = make_seccomp_profile();
  const auto allowed = [&](const char* call, uint64_t argument) {
    for (const Json& rule : profile.at("syscalls")) {
      if (rule.at("names") != Json::array({call})) continue;
      const Json& one = rule.at("args").at(0);
      if ((argument & one.at("value").get<uint64_t>()) == one.at("valueTwo").get<uint64_t>()) return true;
    }
    return false;
  };
  for (const uint64_t high : {uint64_t{0}, uint64_t{1} << 32, ~uint64_t{0xffffffff}}) {
    for (const uint64_t refused : kRefusedIoctls) EXPECT_FALSE(allowed("ioctl", high | refused));
    for (const uint64_t fine : {0u, 1u, 0x5411u, 0x5413u, 0x541Bu, 0x541Du, 0x5422u, 0x5424u, 0xffffffffu})
      EXPECT_TRUE(allowed("ioctl", high | fine)) << fine;
    EXPECT_FALSE(allowed("fcntl", high | 1031));
    EXPECT_TRUE(allowed("fcntl", high | 1030));
    EXPECT_FALSE(allowed("mmap", high | 0x40022));
    EXPECT_TRUE(allowed("mmap", high | 0x22));
    EXPECT_FALSE(allowed("memfd_create", high | 4));
    EXPECT_TRUE(allowed("memfd_create", high | 3));
    EXPECT_FALSE(allowed("shmget", high | 04600));
    EXPECT_TRUE(allowed("shmget", high | 01600));
  }
}

}  // namespace
}  // namespace isogate::docker
