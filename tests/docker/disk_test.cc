#include "tests/docker/gateways.h"
#include "tests/support/program.h"

// Workspaces in file systems of their own, in containers that outlive their gateway.
namespace isogate::docker {
namespace {

using test::Caller;
using test::Gateway;
using test::GatewayOptions;
using test::Json;

class Disk : public OnEngine, public testing::WithParamInterface<const char*> {
 protected:
  Disk() { image_ = "isogate-test:small"; }
  // Skips where such a file system is not available; then the probe must say why.
  std::unique_ptr<Gateway> gateway(int mb, const std::string& config = {}) {
    GatewayOptions options =
        lasting(std::string("workspace_fs: ") + GetParam() + ", disk_mb: " + std::to_string(mb) + config,
                "shell: /bin/sh");
    options.wait_ready = false;
    auto made = std::make_unique<Gateway>(options);
    EXPECT_TRUE(decided(*made)) << Caller(*made, "").get("/readyz").text;
    const Json row = Caller(*made, "").get("/backends").body.at("backends").at(0);
    if (row.at("eligible") == true) return made;
    EXPECT_NE(row.dump().find("workspace_fs"), std::string::npos) << row;
    why_ = row.value("reason", "");
    return nullptr;
  }
  void TearDown() override {
    OnEngine::TearDown();
    test::run_program(
        {"sh", "-c",
         "for m in $(grep -o ' " + state_.path() + "/[^ ]*' /proc/self/mountinfo); do umount -l $m; done"});
  }
  [[nodiscard]] std::string mounts() const {
    return test::run_program({"sh", "-c", "grep -c ' " + state_.path() + "/' /proc/self/mountinfo; true"})
        .out;
  }

  std::string why_;
};

TEST_P(Disk, BoundsProgramsAndAffectsNobodyElse) {
  const auto own = gateway(32);
  if (!own) GTEST_SKIP() << why_;
  const Caller x(*own, "x"), y(*own, "y");
  const Json full = x.run("echo kept > kept; dd if=/dev/zero of=big bs=65536 count=1600; stat -c %s big",
                          {{"timeout_sec", 60}});
  EXPECT_NE(full.at("stderr").get<std::string>().find("No space left"), std::string::npos) << full;
  EXPECT_LE(std::stol(full.at("stdout").get<std::string>()), 32 << 20);
  EXPECT_EQ(y.out("head -c 8000000 /dev/zero > mine && stat -c %s mine"), "8000000\n") << "another one's";
  EXPECT_TRUE(
      refused(x.call("PUT", x.file_url("more"), {}, std::string(24 << 20, 'x')), 507, "quota_exceeded"));
  EXPECT_EQ(x.read("kept").body.at("content"), "kept\n");
  const Json row = x.get("/sandboxes").body.at("sandboxes").at(0);
  EXPECT_EQ(row.at("disk").at("enforcement"), "enforced") << row;
  EXPECT_EQ(x.out("rm big; head -c 4000000 /dev/zero > again && echo fits"), "fits\n");
}

TEST_P(Disk, OfARunningContainerIsFoundAgain) {
  {
    const auto own = gateway(16);
    if (!own) GTEST_SKIP() << why_;
    EXPECT_EQ(Caller(*own, "a").out("echo kept > f; echo mine > /tmp/mark; cat f"), "kept\n");
    own->kill();
  }
  {
    const auto own = gateway(16);
    ASSERT_TRUE(own);
    const Caller me(*own, "a");
    EXPECT_EQ(me.out("cat f /tmp/mark"), "kept\nmine\n") << "the same container, with the same files";
    EXPECT_NE(me.run("head -c 30000000 /dev/zero > g").at("exit_code"), 0);
    own->kill();
  }
  const auto own = gateway(32);
  ASSERT_TRUE(own);
  const Caller me(*own, "a");
  EXPECT_EQ(me.out("rm -f g; cat f; cat /tmp/mark 2>/dev/null; true"), "kept\n")
      << "another size means another container, and the same files";
  EXPECT_EQ(me.out("head -c 20000000 /dev/zero > g && echo fits"), "fits\n");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(mounts(), "0\n") << "something of the purged sandbox is left";
}

TEST_P(Disk, GoesWithASandboxMadeAhead) {
  const auto own = gateway(16, ", warm_pool: 1");
  if (!own) GTEST_SKIP() << why_;
  ASSERT_TRUE(test::eventually(60, [&] {
    return Caller(*own, "").get("/backends").text.find("1 of 1 ready") != std::string::npos ||
           mounts() == "1\n";
  }));
  const Caller me(*own, "a");
  EXPECT_EQ(me.out("echo kept > f; cat f"), "kept\n");
  EXPECT_NE(me.run("head -c 30000000 /dev/zero > g").at("exit_code"), 0);
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(me.out("rm -f g; cat f"), "kept\n");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  own->stop();
  EXPECT_EQ(mounts(), "0\n");
}

INSTANTIATE_TEST_SUITE_P(On, Disk, testing::Values("loop", "tmpfs"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace isogate::docker
