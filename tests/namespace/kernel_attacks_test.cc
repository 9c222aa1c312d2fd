#include <sys/syscall.h>

#include "tests/namespace/boxes.h"

// Groups F, K and I of tests/attacks, as far as they concern the kernel's own interfaces, with the exact
// errors of this backend's filter and masks: tests/guest runs these on another kernel. tests/attacks has all
// of them for every backend.
namespace isogate::test {
namespace {

class KernelAttack : public Boxes {};

TEST_F(KernelAttack, F11_F12_TheInitIsClosed) {
  for (const char* command : {"cat /proc/1/environ", "cat /proc/1/maps", "dd if=/proc/1/mem bs=1 count=1",
                              "ls /proc/1/root/", "ls /proc/1/cwd/", "ls /proc/1/fd", "readlink /proc/1/exe",
                              "cat /proc/1/cmdline", "ls -d /proc/1/ns/mnt"}) {
    const Json tried = x().run(command);
    EXPECT_NE(tried.at("exit_code"), 0) << command;
    EXPECT_EQ(tried.at("stdout"), "") << command;
  }
  EXPECT_EQ(x().out("for p in /proc/[0-9]*; do readlink $p/root; done | sort -u"), "/\n");
}

TEST_F(KernelAttack, F19_F20_NoMountNoRootNoNamespace) {
  for (const char* command :
       {"unshare -Urm true", "unshare -Ur true", "unshare -m true", "unshare -n true",
        "mount -t tmpfs none /tmp", "mount --bind /etc /workspace", "mount -o remount,rw /",
        "mount -o remount,rw /usr", "umount -l /", "umount /proc/interrupts", "chroot /workspace /bin/true",
        "pivot_root . .", "nsenter -t 1 -m true"})
    EXPECT_NE(x().run(command).at("exit_code"), 0) << command;
  // clone, unshare, setns, mount, fsopen, open_tree, move_mount, mount_setattr, clone3
  const std::string said = x().run_argv(python("print(call(56,0x10000000,0,0,0,0),call(272,0x10000000),call("
                                               "308,0,0),call(165,b'none',b'/tmp',b'tmpfs',0,0),"
                                               "call(430,b'tmpfs',0),call(428,-100,b'/"
                                               "',1),call(429,0,b'',0,b'',0),call(442,-100,b'/',0,b'',0),"
                                               "call(435,b'x'*64,64))"))
                               .at("stdout");
  EXPECT_EQ(said, "-1 -1 -1 -1 -38 -38 -38 -38 -38\n");
}

TEST_F(KernelAttack, F21_F38_NoDeviceNoPrivilegeFromFiles) {
  const std::string uid = x().out("id -u");
  EXPECT_EQ(x().run("cp /usr/bin/id mine && chmod 6755 mine && ./mine -u").at("stdout"), uid);
  for (const char* command : {"mknod /workspace/b b 8 0", "mknod /workspace/c c 1 1", "mknod /tmp/n c 0 0",
                              "mknod /dev/shm/n c 1 3", "touch /dev/x", "rm /dev/null",
                              "setfattr -n "
                              "security.capability -v 0x01 /workspace/mine"})
    EXPECT_NE(x().run(command).at("exit_code"), 0) << command;
  EXPECT_EQ(x().run("mkfifo pipe && stat -c %F pipe").at("stdout"), "fifo\n");
}

// The whole host has 4,096.
TEST_F(KernelAttack, TerminalsRunOutOnlyForTheirTenant) {
  const Json taken =
      x().run_argv(python("import os,time\n"
                          "n=0\n"
                          "try:\n"
                          "  while True: os.openpty(); n+=1\n"
                          "except OSError: print(n,flush=True)"));
  EXPECT_EQ(taken.at("stdout"), "16\n");
}

TEST_F(KernelAttack, F22_HandlesCannotBeOpened) {
  EXPECT_EQ(
      x().run_argv(python("print(call(304,3,b'x'*16,0),call(303,-100,b'/',b'x'*16,b'x'*8,0))")).at("stdout"),
      "-1 -1\n");
}

TEST_F(KernelAttack, F34_MasksAreTheNullDevice) {
  for (const char* name : {"interrupts", "kallsyms", "keys", "iomem", "locks"})
    EXPECT_EQ(
        x().run("test ! -e /proc/" + std::string(name) + " || stat -c %t:%T /proc/" + name).at("stdout"),
        "1:3\n")
        << name;
  EXPECT_EQ(
      x().out(
          "cat /proc/interrupts /proc/kallsyms /proc/keys | wc -c; ls -A /proc/irq /proc/bus | grep -v : | "
          "grep -c ."),
      "0\n0\n");
}

TEST_F(KernelAttack, K79_NothingIsLeftOfRoot) {
  EXPECT_EQ(x().out("grep -E 'NoNewPrivs|Seccomp:|Cap(Eff|Prm|Inh|Bnd|Amb)|Groups' /proc/self/status | tr -d "
                    "'\\t\\n '"),
            "Groups:CapInh:0000000000000000CapPrm:0000000000000000CapEff:0000000000000000CapBnd:"
            "0000000000000000CapAmb:0000000000000000NoNewPrivs:1Seccomp:2");
}

TEST_F(KernelAttack, K76_K80_K81_DeniedSystemCalls) {
  struct Denied {
    long number;
    int error;
  };
  const Denied all[] = {{SYS_keyctl, 38},
                        {SYS_add_key, 38},
                        {SYS_request_key, 38},
                        {SYS_io_uring_setup, 38},
                        {SYS_bpf, 38},
                        {SYS_perf_event_open, 38},
                        {SYS_userfaultfd, 38},
                        {SYS_memfd_secret, 38},
                        {SYS_pidfd_getfd, 38},
                        {SYS_io_setup, 38},
                        {SYS_kexec_load, 1},
                        {SYS_init_module, 1},
                        {SYS_iopl, 1},
                        {SYS_ioperm, 1},
                        {SYS_swapon, 1},
                        {SYS_quotactl, 1},
                        {SYS_acct, 1},
                        {SYS_reboot, 1},
                        {SYS_settimeofday, 1},
                        {SYS_clock_settime, 1},
                        {SYS_sethostname, 1},
                        {SYS_syslog, 1},
                        {SYS_ptrace, 1},
                        {SYS_process_vm_readv, 1},
                        {SYS_process_vm_writev, 1},
                        {SYS_kcmp, 1},
                        {SYS_mq_open, 1},
                        {SYS_fanotify_init, 1},
                        {SYS_modify_ldt, 1},
                        {SYS_vhangup, 1},
                        {SYS_mbind, 1},
                        {SYS_kexec_file_load, 1},
                        {9999, 38}};
  std::string code = "print(", expected;
  for (const Denied& each : all) {
    code += "call(" + std::to_string(each.number) + ",0,0,0,0,0,0),";
    expected += (expected.empty() ? "-" : " -") + std::to_string(each.error);
  }
  EXPECT_EQ(x().run_argv(python(code + ")")).at("stdout"), expected + "\n");
}

TEST_F(KernelAttack, K81_ForeignInterfacesKill) {
  // x32 getpid; the same by int 0x80, in a page of its own.
  EXPECT_EQ(x().run_argv(python("call(0x40000000+39); print('alive')")).at("signal"), "SIGSYS");
  const std::string int80 =
      "import mmap\nm=mmap.mmap(-1,4096,prot=7)\nm.write(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3')\n"
      "a=ctypes.addressof(ctypes.c_char.from_buffer(m))\nctypes.CFUNCTYPE(ctypes.c_int)(a)(); "
      "print('alive')\n";
  const Json ended = x().run_argv(python(int80));
  EXPECT_TRUE(ended.at("signal") == "SIGSYS" || ended.at("signal") == "SIGSEGV") << ended;
  EXPECT_EQ(ended.at("stdout"), "");
}

TEST_F(KernelAttack, K82_K83_NoKnobsAndNoCgroups) {
  for (const char* command : {"echo b > /proc/sysrq-trigger", "echo x > /proc/sys/kernel/core_pattern",
                              "echo 1 > /proc/sys/vm/drop_caches", "echo x > /proc/sys/kernel/modprobe",
                              "echo 1 > /proc/sys/kernel/hostname", "echo 1 > /proc/self/oom_score_adj",
                              "ls /sys/*", "ls /sys/fs/cgroup", "ls /sys/kernel/uevent_helper",
                              "mkdir /sys/fs/cgroup/x", "ls /proc/sys/fs/binfmt_misc/*"})
    EXPECT_NE(x().run(command).at("exit_code"), 0) << command;
}

TEST_F(KernelAttack, K84_InputCannotBeInjectedIntoTerminals) {
  EXPECT_EQ(
      x().run_argv(python("print([call(16,0,r,b'x') for r in (0x5412,0x5412|1<<32,0x541C,0x541C|7<<32)])"))
          .at("stdout"),
      "[-1, -1, -1, -1]\n");
}

TEST_F(KernelAttack, K86_FiltersOfATenantHarmOnlyThatTenant) {
  const std::string code =
      // 512 times "return ALLOW": the kernel allows 32,768 instructions, and every one of many filters slows
      // a slow kernel down.
      "f=(ctypes.c_ubyte*(8*512))(*([6,0,0,0,0,0,0xff,0x7f]*512))\n"
      "class P(ctypes.Structure): _fields_=[('n',ctypes.c_ushort),('p',ctypes.c_void_p)]\n"
      "p=P(512,ctypes.addressof(f))\n"
      "print(call(317,1,8,ctypes.byref(p)), call(317,1,0,ctypes.byref(p)))\n"
      "n=0\n"
      "while call(317,1,0,ctypes.byref(p))==0 and n<5000: n+=1\n"
      "print(n<5000)\n"
      "print(call(157,35,1,0,0,0), call(157,4,1,0,0,0))\n";  // PR_SET_MM is refused, PR_SET_DUMPABLE is one's
                                                             // own
  EXPECT_EQ(x().run_argv(python(code)).at("stdout"), "-1 0\nTrue\n-1 0\n");
}

TEST_F(KernelAttack, K89_AProgramWithoutAFileStaysInside) {
  const std::string code =
      "fd=os.memfd_create('x')\nos.write(fd,open('/usr/bin/id','rb').read())\n"
      "os.execve(fd,['id','-u'],{})\n";
  EXPECT_EQ(x().run_argv(python(code)).at("stdout"), x().out("id -u"));
}

TEST_F(KernelAttack, P49_TheInitIsNotTraceable) {
  EXPECT_EQ(
      x().run_argv(python("print([call(101,16,p,0,0) for p in (1,os.getppid(),os.getpid())])")).at("stdout"),
      "[-1, -1, -1]\n");
}

// I 90: what the gateway was started with.
TEST_F(KernelAttack, I90_TheGatewaysSecretsAreNowhere) {
  const std::string key = gateway().key();
  ASSERT_FALSE(key.empty());
  const std::string found =
      x().out("grep -rsl 'the-gateway-s-own-secre[t]\\|" + key.substr(0, key.size() - 1) + "[" + key.back() +
              "]' /proc/*/environ /proc/*/cmdline /proc/*/maps /proc/net /proc/keys /proc/sysvipc /etc "
              "/dev/shm /run /tmp /mnt /var "
              "2>/dev/null; true");
  EXPECT_EQ(found, "");
  EXPECT_EQ(x().out("cat /proc/net/unix | grep -c isogate; true"), "0\n");
}

TEST_F(KernelAttack, I91_TheHostIsNotToBeSeen) {
  EXPECT_EQ(x().out("uname -n; hostname; cat /etc/hostname"), "sandbox\nsandbox\nsandbox\n");
  EXPECT_EQ(x().out("ls -A /home; cd ~user && pwd -P"), "user\n/workspace\n")
      << "another name of the workspace";
  EXPECT_NE(x().run("cat /etc/machine-id").at("exit_code"), 0);
  EXPECT_NE(x().run("dmesg").at("exit_code"), 0);
  EXPECT_NE(x().run("ls /sys/class/net").at("exit_code"), 0);
  EXPECT_EQ(x().out("sed -n 's/^ *\\([a-z0-9]*\\):.*/\\1/p' /proc/net/dev"), "lo\n");
  EXPECT_EQ(x().out("set -- /proc/[0-9]*; echo $#; who | wc -l"), "1\n0\n") << "more than this bash";
  EXPECT_EQ(x().out("cut -d: -f3 /proc/self/cgroup | grep -vE '^/(e[0-9]+)?$'; true"), "")
      << "it shows its place in the groups of this host; /e<n> is a group within the sandbox's own";
  EXPECT_EQ(x().out("cut -d: -f1 /etc/passwd | tr '\\n' ' '; id -un"), "root agent user nobody agent\n");
  for (const char* path :
       {"/root", "/boot", "/etc/shadow", "/etc/ssh", "/var/lib", "/var/log", "/home/[!u]*", "/run/*", "/srv"})
    EXPECT_EQ(x().run(std::string("ls -d ") + path).at("stdout"), "") << path;
  // Of the gateway's paths only the opaque names in the lines of mounts.
  y().run("true");
  const std::string mounts = x().out("cat /proc/self/mountinfo");
  const Answer all = x().get("/sandboxes");
  for (const Json& row : all.body.at("sandboxes")) {
    if (row.at("agent_id") == x().agent()) continue;
    EXPECT_EQ(mounts.find(row.at("sandbox_id").get<std::string>()), std::string::npos) << "another agent's";
  }
}

TEST_F(KernelAttack, I92_ScratchIsOnesOwn) {
  x().run(
      "echo x > /tmp/secret; echo x > /var/tmp/other; echo x > /dev/shm/secret; chmod 777 /tmp; chmod 666 "
      "/tmp/*");
  EXPECT_EQ(y().out("ls -A /tmp /var/tmp /dev/shm | grep -v : | grep -c .; true"), "0\n");
  EXPECT_EQ(x().out("cat /tmp/secret /tmp/other; ls -A /dev/shm"), "x\nx\n") << "/dev/shm is the exec's own";
}

}  // namespace
}  // namespace isogate::test
