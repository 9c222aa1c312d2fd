#include "tests/namespace/boxes.h"

// Groups P and R of tests/attacks, as far as they are specific to this backend.
namespace isogate::test {
namespace {

class ResourceAttack : public Boxes {};

TEST_F(ResourceAttack, P39_AForkBombIsBoundedWithoutAnyCgroup) {
  const auto own = another("    config: {max_processes: 200}");
  const Caller me(*own, "bomb");
  const std::string mark = new_mark();
  const Json ended = me.run("b() { sleep " + mark + " & b | b & }; b; sleep " + mark, {{"timeout_sec", 2}});
  EXPECT_NE(ended.at("outcome"), "unknown");
  EXPECT_TRUE(gone_within(1, mark)) << marked(mark).size() << " survivors";
  EXPECT_EQ(me.out("echo fine"), "fine\n");
}

TEST_F(ResourceAttack, P44_AThousandStoppedProcessesDie) {
  const auto own = another("    config: {memory_mb: 0, cpus: 0, pids: 0}");
  const std::string mark = new_mark();
  const Json ended =
      Caller(*own, "a").run("trap '' TERM; for i in $(seq 1000); do setsid sh -c \"trap '' TERM; sleep " +
                                mark + " & kill -STOP \\$\\$\" & done 2>/dev/null; wait",
                            {{"timeout_sec", 6}});
  EXPECT_EQ(ended.at("outcome"), "timed_out");
  EXPECT_TRUE(gone_within(1, mark)) << marked(mark).size() << " survivors";
}

TEST_F(ResourceAttack, P47_TheInitSurvivesItsTenant) {
  EXPECT_EQ(x().run("kill -9 1; kill -STOP 1; kill -TERM 1; sleep 0.1; exit 5").at("exit_code"), 5);
  EXPECT_EQ(x().run("sleep 100 & kill -9 -1; wait; echo alone").at("stdout"), "alone\n")
      << "-1 is every process except itself and the init";
}

TEST_F(ResourceAttack, P47_TamperingWithTheInitHarmsOneself) {
  // A program may lower the limits of a process with its uid. The exec may fail; the next one works.
  x().run_argv(
      python("[call(302,1,r,struct.pack('QQ',0,0),0) for r in range(16)]\ncall(203,1,8,b'\\1'+b'\\0'*7)"),
      {{"timeout_sec", 5}});
  EXPECT_EQ(x().run("nproc; ulimit -n").at("exit_code"), 0);
}

// The rest of group R and group N: tests/attacks, on every backend.
TEST_F(ResourceAttack, R65_LockedMemoryAndSystemVObjectsAreBounded) {
  EXPECT_EQ(
      x().run_argv(
             python("import mmap\nm=mmap.mmap(-1,64<<20)\nprint(call(149,ctypes.c_void_p(ctypes.addressof("
                    "ctypes.c_char.from_buffer(m))),64<<20))"))
          .at("stdout"),
      "-12\n");
  EXPECT_EQ(x().out("ulimit -c; ulimit -q 2>/dev/null || true"), "0\n0\n");
  EXPECT_EQ(x().run("ipcmk -M 1000000 && ipcmk -S 3 && ipcmk -Q").at("exit_code"), 0);
  EXPECT_EQ(x().out("ipcs -mqs | grep -c 0x; true"), "0\n") << "System V objects end with their exec";
}

}  // namespace
}  // namespace isogate::test
