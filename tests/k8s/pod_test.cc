// What a program finds in a real pod: where it can write, what stays, and its limits.
#include "tests/k8s/on_cluster.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::Gateway;
using testing::HasSubstr;

class K8sPod : public OnCluster {};

TEST_F(K8sPod, TheRootIsReadOnlyAndFourPlacesCanBeWritten) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  // Everybody may write to this directory of the image.
  EXPECT_EQ(me.out("stat -c %a /var/tmp"), "1777\n");
  EXPECT_THAT(me.out("touch /var/tmp/file 2>&1; true"), HasSubstr("Read-only file system"));
  for (const std::string place : {"/workspace", "/tmp", "/home/agent/.local"}) {
    const std::string program = place + "/program";
    EXPECT_EQ(me.out("cp /bin/echo " + program + " && " + program + " ran; rm " + program), "ran\n") << place;
  }
  EXPECT_EQ(me.out("stat -f -c %T /dev/shm"), "tmpfs\n");
  EXPECT_EQ(me.out("python3 -c 'from multiprocessing import shared_memory as s; "
                   "m = s.SharedMemory(create=True, size=1 << 20); print(m.size); m.unlink()'"),
            "1048576\n");
}

TEST_F(K8sPod, HomeIsTheWorkspaceSoWhatPipAndCachesKeepStays) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("echo ~ $HOME; python3 -m site --user-base"),
            "/workspace /workspace\n/workspace/.local\n");
  // What `pip install --user` does.
  me.run(
      "site=$(python3 -m site --user-site); mkdir -p $site ~/.cache; echo 'said = 1' > $site/small.py; "
      "echo cached > ~/.cache/kept; touch /home/agent/.local/gone /dev/shm/gone /tmp/gone");
  EXPECT_EQ(me.out("python3 -c 'import small; print(small.said)'"), "1\n");
  const std::string first = uid_of(pod());
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(me.out("python3 -c 'import small; print(small.said)'; cat ~/.cache/kept"), "1\ncached\n");
  EXPECT_EQ(me.out("ls /home/agent/.local /dev/shm /tmp | grep gone; echo none"), "none\n");
  EXPECT_TRUE(test::eventually(kGone, [&] { return all("pods").size() == 1; }));
  EXPECT_NE(uid_of(pod()), first);
}

TEST_F(K8sPod, AUserWithoutANameInTheImageHasOneOnRequest) {
  const std::string names =
      "id -un; id -gn; grep -c ^root: /etc/passwd; id -u agent; touch /etc/passwd 2>&1; true";
  {
    Gateway gateway(options("uid: 77777"));
    EXPECT_NE(Caller(gateway, "a").run("whoami").at("exit_code"), 0) << "the image has a name for this uid";
  }
  Gateway gateway(options("uid: 77777, names: added"));
  const std::string out = Caller(gateway, "b").out(names);
  EXPECT_THAT(out, testing::StartsWith("agent\nagent\n1\n77777\n"));
  EXPECT_THAT(out, testing::AnyOf(HasSubstr("Read-only"), HasSubstr("denied")));
}

TEST_F(K8sPod, AProgramAboveTheMemoryLimitIsEndedAndThePodIsNot) {
  Gateway gateway(options("memory_mb: 96"));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.out("touch /tmp/mark; python3 -c 'print(len(bytearray(40 << 20)))'"), "41943040\n");
  const std::string before = uid_of(pod());
  const Json result = me.run("python3 -c 'x = bytearray(200 << 20)'", {{"timeout_sec", 60}});
  EXPECT_EQ(result.at("outcome"), "oom_killed") << result;
  EXPECT_EQ(result.at("exit_code"), 137) << result;
  EXPECT_EQ(me.out("ls /tmp/mark"), "/tmp/mark\n");
  const Json after = pod();
  EXPECT_EQ(uid_of(after), before);
  EXPECT_EQ(after.at("status").at("containerStatuses").at(0).at("restartCount"), 0);
}

TEST_F(K8sPod, ProgramsAboveTheCpuLimitAreSlowed) {
  Gateway gateway(options("cpus: 0.2"));
  const Caller me(gateway, "a");
  const std::string slowed =
      "sed -n 's/^nr_throttled //p' /sys/fs/cgroup/cpu/cpu.stat /sys/fs/cgroup/cpu.stat 2>/dev/null";
  const int before = std::stoi(me.out(slowed));
  const Json result =
      me.run("timeout 3 sh -c 'while :; do :; done' & timeout 3 sh -c 'while :; do :; done'; wait",
             {{"timeout_sec", 60}});
  EXPECT_EQ(result.at("outcome"), "exited") << result;
  EXPECT_GT(std::stoi(me.out(slowed)), before) << result;
  const double share = result.at("cpu_ms").get<double>() / result.at("duration_ms").get<double>();
  EXPECT_LT(share, 0.4) << "of a processor, where 0.2 is the limit and two were asked for: " << result;
}

}  // namespace
}  // namespace isogate::k8s
