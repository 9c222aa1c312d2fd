#include "tests/namespace/boxes.h"
#include "tests/support/program.h"

// What one sandbox writes takes no space from another.
namespace isogate::test {
namespace {

class DiskLimit : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!namespace_obstacle().empty()) GTEST_SKIP() << namespace_obstacle();
  }
  // Skips where such a file system is not available; then the probe must say why.
  std::unique_ptr<Gateway> limited(const std::string& fs, int mb, const std::string& state_dir = "") {
    GatewayOptions options;
    options.yaml = "backends:\n  - name: namespace\n    config: {workspace_fs: " + fs +
                   ", disk_mb: " + std::to_string(mb) + "}\n";
    options.state_dir = state_dir;
    options.wait_ready = false;
    auto made = std::make_unique<Gateway>(options);
    states_.push_back(made->state_dir());
    EXPECT_TRUE(decided(*made)) << Caller(*made, "").get("/readyz").text;
    const Json row = Caller(*made, "").get("/backends").body.at("backends").at(0);
    if (row.at("eligible") == true) return made;
    EXPECT_NE(row.dump().find("workspace_fs"), std::string::npos) << row;
    why_ = row.value("reason", "");
    return nullptr;
  }
  // A tmpfs outlives its gateway: unmounts what a case did not purge.
  void TearDown() override {
    for (const std::string& state : states_)
      run_program({"sh", "-c",
                   "for m in $(grep -o ' " + state +
                       "/[^ ]*' /proc/self/mountinfo); do umount $m; done; rm -rf " + state});
  }
  // The mounts below its state directory.
  static std::string mounts(const std::string& state_dir) {
    return run_program({"sh", "-c", "grep -c ' " + state_dir + "/' /proc/self/mountinfo; true"}).out;
  }

  std::string why_;
  std::vector<std::string> states_;
};

TEST_P(DiskLimit, HoldsForProgramsAndAffectsNobodyElse) {
  const auto own = limited(GetParam(), 32);
  if (!own) GTEST_SKIP() << why_;
  const Caller x(*own, "x"), y(*own, "y");
  const Json full =
      x.run("echo kept > kept; head -c 100M /dev/zero > big; stat -c %s big", {{"timeout_sec", 60}});
  EXPECT_NE(full.at("stderr").get<std::string>().find("No space left"), std::string::npos) << full;
  EXPECT_LE(std::stol(full.at("stdout").get<std::string>()), 32 << 20);
  EXPECT_EQ(y.out("head -c 8M /dev/zero > mine && stat -c %s mine"), "8388608\n") << "another one's";
  EXPECT_EQ(Caller(*own, "z").out("echo new > new && cat new"), "new\n") << "a new one";
  // At the limit files can be read, listed, removed and truncated.
  EXPECT_EQ(x.read("kept").body.at("content"), "kept\n");
  EXPECT_EQ(x.out("ls; : > big; stat -c %s big"), "big\nkept\n0\n");
  EXPECT_EQ(x.out("head -c 4M /dev/zero > again && echo fits"), "fits\n");
}

TEST_P(DiskLimit, RefusesAWriteBeyondItWithItsNumbers) {
  const auto own = limited(GetParam(), 16);
  if (!own) GTEST_SKIP() << why_;
  const Caller x(*own, "x");
  ASSERT_TRUE(succeeded(x.write("kept", "old")));
  const Answer refusal = x.call("PUT", x.file_url("kept"), {}, std::string(24 << 20, 'x'));
  ASSERT_TRUE(refused(refusal, 507, "quota_exceeded"));
  const Json& details = refusal.body.at("error").at("details");
  EXPECT_LE(details.at("limit_bytes").get<long>(), 16 << 20);
  EXPECT_GT(details.at("attempted_bytes").get<long>(), 8 << 20) << details;
  EXPECT_NE(refusal.text.find("disk quota of its sandbox"), std::string::npos) << refusal.text;
  EXPECT_EQ(x.content("kept"), "old");
  EXPECT_TRUE(succeeded(x.call("PUT", x.file_url("fits"), {}, std::string(6 << 20, 'x'))))
      << "the staged file is removed";
  const Json row = x.get("/sandboxes").body.at("sandboxes").at(0);
  EXPECT_EQ(row.at("disk").at("enforcement"), "enforced") << row;
  EXPECT_GE(row.at("disk").at("used_bytes").get<long>(), 6 << 20) << row;
}

TEST_P(DiskLimit, CountsFilesHolesLinksAndWhatIsOpenThoughRemoved) {
  const auto own = limited(GetParam(), 16);
  if (!own) GTEST_SKIP() << why_;
  const Caller x(*own, "x");
  const Json many = x.run_argv({"/usr/bin/python3", "-c",
                                "n=0\ntry:\n  while n<10000: open(str(n),'w').close(); n+=1\n"
                                "except OSError as e: print(e.errno, n<=2048)"},
                               {{"timeout_sec", 60}});
  EXPECT_EQ(many.at("stdout"), "28 True\n") << many;
  EXPECT_EQ(x.run("find . -mindepth 1 -delete").at("exit_code"), 0);
  EXPECT_EQ(x.run_argv({"/usr/bin/python3", "-c",
                        "import os\nf=open('gone','wb',0); os.unlink('gone'); n=0\n"
                        "try:\n  while n<64: n+=f.write(b'x'*(1<<20))>>20\n"
                        "except OSError as e: print(e.errno, n<=16)"})
                .at("stdout"),
            "28 True\n");
  EXPECT_EQ(
      x.out("truncate -s 1T holes && stat -c %s holes && rm holes; head -c 1M /dev/zero > f && echo fits"),
      "1099511627776\nfits\n");
}

TEST_P(DiskLimit, IsReportedByProbeAndKeptWithItsSandbox) {
  const TemporaryDirectory state("/var/tmp");
  {
    const auto own = limited(GetParam(), 16, state.path());
    if (!own) GTEST_SKIP() << why_;
    const std::string told = Caller(*own, "").get("/backends").text;
    EXPECT_NE(told.find("sandbox_limit_disk"), std::string::npos) << told;
    EXPECT_NE(told.find("enforced by a file system of its own"), std::string::npos) << told;
    const bool warned = own->log().find("can fill the file system") != std::string::npos;
    EXPECT_EQ(warned, std::string(GetParam()) == "loop") << own->log();
    EXPECT_EQ(Caller(*own, "a").out("echo kept > f; sync f; cat f"), "kept\n");
    own->kill();
  }
  {
    const auto own = limited(GetParam(), 16, state.path());
    ASSERT_TRUE(own);
    const Caller me(*own, "a");
    EXPECT_EQ(me.out("cat f"), "kept\n") << "after a crash";
    EXPECT_EQ(me.run("head -c 30M /dev/zero > g").at("exit_code"), 1);
    EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
    EXPECT_EQ(me.out("cat f"), "kept\n") << "after it was ended";
    EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
    EXPECT_EQ(mounts(state.path()), "0\n") << "nothing of the purged sandbox is mounted";
    EXPECT_EQ(me.run("cat f").at("exit_code"), 1);
    EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
    own->stop();
  }
  EXPECT_EQ(mounts(state.path()), "0\n");
}

TEST_P(DiskLimit, OneThatCannotBeOpenedAnyMoreCanBePurged) {
  const TemporaryDirectory state("/var/tmp");
  {
    const auto own = limited(GetParam(), 32, state.path());
    if (!own) GTEST_SKIP() << why_;
    const Caller me(*own, "a");
    EXPECT_EQ(me.out("head -c 20M /dev/zero > f; sync f; stat -c %s f"), "20971520\n");
    own->stop();
  }
  const auto own = limited(GetParam(), 8, state.path());
  ASSERT_TRUE(own);
  const Caller me(*own, "a");
  const Answer refusal = me.exec("true");
  EXPECT_NE(refusal.status, 200) << "its files do not fit";
  EXPECT_NE(refusal.text.find("disk_mb"), std::string::npos) << refusal.text;
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(mounts(state.path()), "0\n");
  EXPECT_EQ(me.out("ls -A; echo new"), "new\n");
}

// Two backend hosts have it open one after the other, never at once.
TEST_P(DiskLimit, AReloadKeepsNobodyWaitingForAnothersExec) {
  const auto own = limited(GetParam(), 32);
  if (!own) GTEST_SKIP() << why_;
  const Caller x(*own, "x"), y(*own, "y"), z(*own, "z");
  ASSERT_EQ(x.exec("sleep 300", {{"background", true}}).status, 202);
  for (const Caller* idle : {&y, &z}) ASSERT_EQ(idle->out("echo kept > f; cat f"), "kept\n");
  own->reload("log: {level: debug}\nbackends:\n  - name: namespace\n    config: {workspace_fs: " +
              std::string(GetParam()) + ", disk_mb: 32}\n");
  EXPECT_EQ(y.out("cat f"), "kept\n");
  EXPECT_TRUE(succeeded(z.call("DELETE", "/sandboxes/z?purge=true")));
  EXPECT_EQ(x.out("echo beside it"), "beside it\n");
  EXPECT_TRUE(succeeded(x.call("DELETE", "/sandboxes/x?purge=true")));
}

INSTANTIATE_TEST_SUITE_P(On, DiskLimit, testing::Values("loop", "tmpfs"),
                         [](const auto& each) { return std::string(each.param); });

class DiskDefault : public Boxes {};

TEST_F(DiskDefault, OneThatIsOnlyCountedIsSaidAloud) {
  const std::string told = Caller(gateway(), "").get("/backends").text;
  if (told.find("\"sandbox_limit_disk\"") != std::string::npos)
    GTEST_SKIP() << "the file system of the sandboxes has project quotas";
  EXPECT_NE(told.find("disk: a limit for each sandbox, advisory"), std::string::npos) << told;
  EXPECT_NE(told.find("sandbox_disk_advisory"), std::string::npos) << told;
  EXPECT_NE(gateway().log().find("a program in a sandbox can fill the file system of"), std::string::npos)
      << gateway().log();
  GatewayOptions options;
  options.yaml = "backends:\n  - name: namespace\n    config: {disk_mb: 64}\n";
  options.wait_ready = false;
  const Gateway asked(options);
  const auto refused_by_probe = [&] {
    const std::string said = Caller(asked, "").get("/backends").text;
    return said.find("disk_mb would only be advisory") != std::string::npos &&
           said.find("workspace_fs: loop") != std::string::npos;
  };
  EXPECT_TRUE(eventually(20, refused_by_probe)) << Caller(asked, "").get("/backends").text;
}

}  // namespace
}  // namespace isogate::test
