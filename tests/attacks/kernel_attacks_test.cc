#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "tests/attacks/attack.h"
#include "tests/support/program.h"

// Group K, and the cases of F and P that are about the kernel's own interfaces.
namespace isogate::test {
namespace {

// What the loader of a program reports: whether the program would run as another user. It then exits.
constexpr const char* kWhoItBecomes =
    "import subprocess\n"
    "def becomes(path):\n"
    "  try: done=subprocess.run([path],env={'LD_SHOW_AUXV':'1','LD_TRACE_LOADED_OBJECTS':'1'},"
    "stdin=subprocess.DEVNULL,capture_output=True,timeout=20)\n"
    "  except OSError as e: return 'refused' if e.errno in (1,13) else str(e)\n"
    "  rows=dict(l.split(':',1) for l in done.stdout.decode().splitlines() if l.startswith('AT_'))\n"
    "  who=[rows.get(k,'?').strip() for k in ('AT_EUID','AT_EGID','AT_SECURE')]\n"
    "  return 'nobody else' if who==[str(os.getuid()),str(os.getgid()),'0'] else str(who)\n";

TEST_F(KernelAttack, K78_NoSetuidProgramAndNoCapabilityOfAFileHelps) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  const std::string found =
      said(x(),
           std::string(kWhoItBecomes) +
               "import stat\n"
               "for top in ('/usr','/opt','/sbin','/bin'):\n"
               "  for place,_,names in os.walk(top):\n"
               "    for path in (os.path.join(place,n) for n in names):\n"
               "      try:\n"
               "        mode=os.lstat(path).st_mode\n"
               "        if not stat.S_ISREG(mode) or not mode&0o111: continue\n"
               "        marked=mode&0o6000\n"
               "        try: marked=marked or os.getxattr(path,'security.capability')\n"
               "        except OSError: pass\n"
               "      except OSError: continue\n"
               "      if marked and os.access(path,os.X_OK): print(path,becomes(path))\n",
           {{"timeout_sec", 90}});
  EXPECT_NE(found.find("/usr/bin/su nobody else\n"), std::string::npos) << found;
  EXPECT_NE(found.find("/usr/bin/newgrp nobody else\n"), std::string::npos) << found;
  std::istringstream lines(found);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.ends_with(" nobody else") || line.ends_with(" refused")) << line;
}

// Programs left in the workspace: setuid files of root, and files with capabilities.
TEST_F(KernelAttack, F21_K78_APlantedProgramIsWorthNothing) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  x().run("true");
  const std::string place = workspace_on_host(gateway(), x());
  if (place.empty()) GTEST_SKIP() << "this host does not see the workspaces of " << backend();
  for (const char* name : {"/rootly", "/capable"})
    ASSERT_EQ(run_program({"install", "-o", "0", "-g", "0", "-m", name[1] == 'r' ? "6755" : "0755",
                           "/usr/bin/python3", place + name})
                  .exit_code,
              0);
  const unsigned char all[20] = {1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
  ASSERT_EQ(::setxattr((place + "/capable").c_str(), "security.capability", all, sizeof all, 0), 0);
  EXPECT_EQ(said(x(), std::string(kWhoItBecomes) + "print(becomes('./rootly'))"), "nobody else\n");
  const Json tried = x().run("./capable -c 'print(open(\"/proc/self/status\").read())' | grep CapEff");
  const std::string gained = tried.at("stdout");
  EXPECT_TRUE(gained.empty() || gained == "CapEff:\t0000000000000000\n") << gained;
  EXPECT_TRUE(gained.empty() || tried.at("exit_code") == 0) << tried;
}

TEST_F(KernelAttack, K79_NothingIsLeftOfRoot) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  EXPECT_EQ(x().out("grep -E 'NoNewPrivs|Cap(Eff|Prm|Inh|Bnd|Amb)' /proc/self/status | tr -d '\t\n '"),
            "CapInh:0000000000000000CapPrm:0000000000000000CapEff:0000000000000000CapBnd:"
            "0000000000000000CapAmb:0000000000000000NoNewPrivs:1");
  EXPECT_EQ(said(x(), "print(0 in os.getresuid()+os.getresgid(), set(os.getgroups())-{os.getgid()})"),
            "False set()\n");
  if (isolates()) {
    EXPECT_EQ(x().out("grep Seccomp: /proc/self/status"), "Seccomp:\t2\n");
  }
}

TEST_F(KernelAttack, K76_K80_K81_F19_F22_DeniedSystemCalls) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  struct Denied {
    long number;
    const char* arguments;
    bool by_our_table = false;  // other filters may refuse less
  };
  const Denied all[] = {{SYS_keyctl, "0,-3,0,0,0"},
                        {SYS_add_key, "b'user',b'a',b'b',1,-3"},
                        {SYS_request_key, "b'user',b'a',0,-3"},
                        {SYS_bpf, "0,0,0"},
                        {SYS_perf_event_open, "0,0,-1,-1,0"},
                        {SYS_userfaultfd, "0"},
                        {SYS_kexec_load, "0,0,0,0"},
                        {SYS_kexec_file_load, "-1,-1,0,b'',0"},
                        {SYS_init_module, "b'x',1,b''"},
                        {SYS_finit_module, "0,b'',0"},
                        {SYS_delete_module, "b'x',0"},
                        {SYS_iopl, "3"},
                        {SYS_ioperm, "0x80,1,1"},
                        {SYS_swapon, "b'/dev/null',0"},
                        {SYS_quotactl, "0x80000700,b'/dev/null',0,b'x'*80"},
                        {SYS_acct, "b'/tmp/acct'"},
                        {SYS_reboot, "0xfee1dead,672274793,0x89abcdef,0"},
                        {SYS_settimeofday, "b'\\0'*16,0"},
                        {SYS_clock_settime, "0,b'\\0'*16"},
                        {SYS_sethostname, "b'x',1"},
                        {SYS_setdomainname, "b'x',1"},
                        {SYS_syslog, "3,b' '*64,64"},
                        {SYS_mount, "b'none',b'/tmp',b'tmpfs',0,0"},
                        {SYS_mount, "b'/etc',b'/tmp',0,4096,0"},
                        {SYS_umount2, "b'/',2"},
                        {SYS_umount2, "b'/proc',2"},
                        {SYS_pivot_root, "b'.',b'.'"},
                        {SYS_chroot, "b'.'"},
                        {SYS_unshare, "0x10000000"},  // a user namespace
                        {SYS_unshare, "0x20000"},
                        {SYS_clone, "0x10000000,0,0,0,0"},
                        {SYS_setns, "0,0"},
                        {SYS_fsopen, "b'tmpfs',0"},
                        {SYS_open_tree, "-100,b'/',1"},
                        {SYS_move_mount, "0,b'',0,b'',0"},
                        {SYS_open_by_handle_at, "3,b'\\x08\\0\\0\\0\\1\\0\\0\\0\\2\\0\\0\\0\\0\\0\\0\\0',0"},
                        {SYS_fanotify_init, "0,0"},
                        {SYS_vhangup, ""},
                        {SYS_io_uring_setup, "1,b'\\0'*120", true},
                        {SYS_io_setup, "1,b'\\0'*8", true},
                        {SYS_memfd_secret, "0", true},
                        {SYS_pidfd_getfd, "0,0,0", true},
                        {SYS_clone3, "b'\\0'*64,64", true},
                        {SYS_mount_setattr, "-100,b'/',0,b'',0", true},
                        {SYS_name_to_handle_at, "-100,b'/',b'\\0'*16,b'\\0'*8,0", true},
                        {SYS_ptrace, "16,os.getppid(),0,0", true},
                        {SYS_process_vm_readv, "os.getppid(),0,0,0,0,0", true},
                        {SYS_process_vm_writev, "os.getppid(),0,0,0,0,0", true},
                        {SYS_kcmp, "1,os.getpid(),0,0,0", true},
                        {SYS_mq_open, "b'x',66,384,0", true},
                        {SYS_modify_ldt, "0,b' '*16,16", true},
                        {SYS_mbind, "0,0,0,0,0,0", true},
                        {9999, "0", true}};
  std::string code, expected;
  for (const Denied& each : all) {
    if (each.by_our_table && !filters_calls()) continue;
    const std::string name = std::to_string(each.number) + "(" + each.arguments + ")";
    // An argument list of 32 bits: what libc's syscall(2) answers of modify_ldt is no long.
    code += "r=call(" + std::to_string(each.number) + (*each.arguments == '\0' ? "" : ",") + each.arguments +
            ")\nif ctypes.c_int(r).value not in (-1,-38): print(r,\"" + name + "\")\n";
  }
  EXPECT_EQ(said(x(), code), "") << "served";
}

// The gateway's processes inherit a session keyring, as under systemd.
TEST_F(KernelAttack, K76_AgentsHaveNoKeyringInCommon) {
  if (isolates()) GTEST_SKIP() << "nothing there can use keys: K76_K80_K81_F19_F22_DeniedSystemCalls";
  if (!separates_agents()) GTEST_SKIP() << "as an ordinary user, agents and gateway share one uid";
  if (::syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, nullptr) < 0)
    GTEST_SKIP() << "no keyring can be made here: " << std::strerror(errno);
  const auto own = another("");
  // Made in one's session keyring, for everybody, and looked for from there: KEYCTL_SETPERM, KEYCTL_SEARCH.
  const std::string keyctl = "call(" + std::to_string(SYS_keyctl),
                    add = "call(" + std::to_string(SYS_add_key);
  const std::string name = "b'isogate-" + new_mark() + "'", found = keyctl + ",10,-3,b'user'," + name + ",0)";
  EXPECT_EQ(said(Caller(*own, "x"), "key=" + add + ",b'user'," + name + ",b'secret',6,-3)\nprint(key>0," +
                                        keyctl + ",5,key,0x3f3f3f3f)," + found + "==key)"),
            "True 0 True\n");
  EXPECT_EQ(said(Caller(*own, "y"), "print(" + found + ")"), "-126\n") << "it has another agent's key";
}

TEST_F(KernelAttack, K81_ForeignInterfacesKill) {
  if (!filters_calls()) GTEST_SKIP() << (isolates() ? kRuntimesFilter : kNoIsolation);
  // x32's getpid; i386's by int 0x80, in a page of its own.
  EXPECT_EQ(x().run_argv(python("call(0x40000000+39); print('alive')")).at("signal"), "SIGSYS");
  const std::string old =
      "import mmap\nm=mmap.mmap(-1,4096,prot=7)\nm.write(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3')\n"
      "a=ctypes.addressof(ctypes.c_char.from_buffer(m))\nctypes.CFUNCTYPE(ctypes.c_int)(a)(); "
      "print('alive')\n";
  const Json ended = x().run_argv(python(old));
  EXPECT_TRUE(ended.at("signal") == "SIGSYS" || ended.at("signal") == "SIGSEGV") << ended;
  EXPECT_EQ(ended.at("stdout"), "");
}

TEST_F(KernelAttack, K82_K83_NoKnobsAndNoCgroups) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  EXPECT_EQ(
      said(
          x(),
          "for p in ('/proc/sysrq-trigger','/proc/sys/kernel/core_pattern','/proc/sys/vm/drop_caches',"
          "'/proc/sys/kernel/modprobe','/proc/sys/kernel/hostname','/proc/sys/fs/binfmt_misc/register',"
          "'/sys/kernel/uevent_helper','/proc/sys/kernel/randomize_va_space','/proc/sys/net/ipv4/ip_forward',"
          "'/proc/acpi/wakeup','/proc/irq/default_smp_affinity','/proc/timer_list','/sys/power/state',"
          "'/proc/1/oom_score_adj','/dev/mem','/dev/kmsg'):\n"
          "  try:\n"
          "    if os.fstat(os.open(p,os.O_WRONLY)).st_rdev!=os.makedev(1,3): print(p)\n"  // a mask is
                                                                                          // /dev/null
          "  except OSError as e:\n"
          "    if e.errno not in (1,2,13,30): print(p,e)\n"
          "try: print(os.write(os.open('/proc/self/oom_score_adj',os.O_WRONLY),b'-1000'))\n"
          "except OSError as e: print(e.errno in (1,13,30))\n"),
      "True\n");
  const std::string groups =
      "tops=[l.split(' - ')[0].split()[4] for l in open('/proc/self/mountinfo') if ' - cgroup' in l]\n"
      "for top in tops:\n"
      "  for d,_,names in os.walk(top):\n"
      "    for p in [d]+[os.path.join(d,n) for n in names]:\n"
      "      if os.access(p,os.W_OK): print(p)\n"
      "    try: os.mkdir(d+'/own'); print('made',d)\n"
      "    except OSError: pass\n"
      "    break\n";
  EXPECT_EQ(said(x(), groups), "");
  if (backend() == "namespace") {  // each layer by itself: the others would hide that it is missing
    EXPECT_EQ(said(x(), groups + "print(tops)\nprint(os.statvfs('/proc').f_flag&os.ST_RDONLY)"), "[]\n1\n");
  }
}

TEST_F(KernelAttack, K84_InputCannotBeInjectedIntoTerminals) {
  EXPECT_EQ(
      said(x(), "print({call(16,0,r,b'x') in (-1,-25) for r in (0x5412,0x5412|1<<32,0x541C,0x541C|7<<32)})"),
      "{True}\n");
  const std::string own =
      "import pty\n"
      "pid,fd=pty.fork()\n"
      "if pid==0:\n"
      "  r=[call(16,0,q,b'x') for q in (0x5412,0x5412|1<<32)]\n"
      "  print('' if 0 in r else 'refused',flush=True); os._exit(0)\n"
      "said=b''\n"
      "try:\n"
      "  while True:\n"
      "    got=os.read(fd,99)\n"
      "    if not got: break\n"
      "    said+=got\n"
      "except OSError: pass\n"
      "os.waitpid(pid,0)\n"
      "print('refused' if b'refused' in said else 'typed')\n";
  if (!filters_calls())
    GTEST_SKIP() << (isolates() ? kRuntimesFilter : kNoIsolation) << ", and a terminal of its own is its own";
  if (is_root()) {
    EXPECT_EQ(said_here(own), "typed\n");
  }
  EXPECT_EQ(said(x(), own), "refused\n");
}

TEST_F(KernelAttack, K86_FiltersOfATenantHarmOnlyThatTenant) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  const std::string code =
      // 512 times "return ALLOW": the kernel allows 32,768 instructions, and every one of many filters slows
      // a slow kernel down.
      "f=(ctypes.c_ubyte*(8*512))(*([6,0,0,0,0,0,0xff,0x7f]*512))\n"
      "class P(ctypes.Structure): _fields_=[('n',ctypes.c_ushort),('p',ctypes.c_void_p)]\n"
      "p=P(512,ctypes.addressof(f))\n"
      "listener=call(317,1,8,ctypes.byref(p))\n"
      "print(call(317,1,0,ctypes.byref(p)))\n"
      "n=0\n"
      "while call(317,1,0,ctypes.byref(p))==0 and n<5000: n+=1\n"
      "print(n<5000)\n"
      // PR_SET_MM is refused, PR_SET_DUMPABLE is one's own
      "print(call(157,35,1,4096,0,0)<0, call(157,4,1,0,0,0))\n";
  EXPECT_EQ(said(x(), code + (filters_calls() ? "print(listener)" : "")),
            std::string("0\nTrue\nTrue 0\n") + (filters_calls() ? "-1\n" : ""));
}

TEST_F(KernelAttack, K89_AProgramWithoutAFileStaysInside) {
  const std::string code =
      "fd=os.memfd_create('x')\nos.write(fd,open(os.path.realpath('/usr/bin/grep'),'rb').read())\n"
      "os.execve(fd,['grep','-E','^(Uid|Gid|Cap.*|NoNewPrivs|Seccomp):','/proc/self/status'],{})\n";
  const std::string inside = said(x(), code);
  EXPECT_EQ(inside, x().out("grep -E '^(Uid|Gid|Cap.*|NoNewPrivs|Seccomp):' /proc/self/status"));
  EXPECT_NE(inside.find("NoNewPrivs:\t1\n"), std::string::npos) << inside;
  if (separates_agents()) {
    EXPECT_EQ(inside.find("Uid:\t0\t"), std::string::npos) << inside;
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
      EXPECT_NE(inside.find(std::string(set) + ":\t0000000000000000\n"), std::string::npos) << inside;
  }
  if (isolates()) {
    EXPECT_NE(inside.find("Seccomp:\t2\n"), std::string::npos) << inside;
  }
}

// What supervises: pid 1 of a namespace, a container or a pod.
TEST_F(KernelAttack, P49_F11_F12_TheFirstProcessIsClosed) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  for (const char* path : {"environ", "maps", "mem", "root/", "cwd/", "fd/", "exe", "io", "stack", "auxv"}) {
    const std::string all = std::string("/proc/1/") + path;
    const Json tried = x().run((all.ends_with('/') ? "ls " : "cat ") + all);
    EXPECT_NE(tried.at("exit_code"), 0) << path;
    EXPECT_EQ(tried.at("stdout"), "") << path;
  }
  EXPECT_EQ(said(x(),
                 "b=ctypes.create_string_buffer(8)\n"
                 "l=(ctypes.c_size_t*2)(ctypes.addressof(b),8)\n"
                 "r=(ctypes.c_size_t*2)(0x400000,8)\n"
                 "print({c in (-1,-3,-38) for c in (call(101,16,1,0,0),call(101,0x4206,1,0,0),"
                 "call(310,1,l,1,r,1,0),call(311,1,l,1,r,1,0),call(438,call(434,1,0),0,0))})\n"),
            "{True}\n");
  EXPECT_EQ(x().out("for p in /proc/[0-9]*; do readlink $p/root; done | sort -u"), "/\n");
}

// Next to another exec of the same agent, which may be in the same container.
TEST_F(KernelAttack, P49_AnotherAgentsMemoryIsNotReadable) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  const std::string mark = new_mark();
  ExecStream victim(y(), {{"command", "exec sleep " + mark}, {"timeout_sec", 60}});
  ASSERT_TRUE(there_within(10, mark));
  const std::string pattern = mark.substr(0, mark.size() - 1) + "[" + mark.back() + "]";
  EXPECT_EQ(x().out("grep -al '" + pattern + "' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true"),
            "");
  EXPECT_NE(
      y().out("grep -al '" + pattern + "' /proc/[0-9]*/cmdline; true") + (shares_container() ? "" : "-"), "")
      << "execs in one container do see each other";
}

TEST_F(KernelAttack, F34_F35_DevicesAreWhatTheySayAndMasksHold) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  // Which nodes exist, and the kind of each.
  EXPECT_EQ(
      said(x(),
           "import stat\n"
           "known={'null':(1,3),'zero':(1,5),'full':(1,7),'random':(1,8),'urandom':(1,9),'tty':(5,0)}\n"
           "for d,dirs,names in os.walk('/dev'):\n"
           "  for n in names+dirs:\n"
           "    p=os.path.join(d,n); s=os.lstat(p)\n"
           "    if stat.S_ISBLK(s.st_mode): print('block',p)\n"
           "    if not stat.S_ISCHR(s.st_mode): continue\n"
           "    number=(os.major(s.st_rdev),os.minor(s.st_rdev))\n"
           "    if number in known.values() or p in ('/dev/pts/ptmx','/dev/ptmx'): continue\n"
           "    print(p,number)\n"
           "for n,number in known.items():\n"
           "  s=os.lstat('/dev/'+n)\n"
           "  if (os.major(s.st_rdev),os.minor(s.st_rdev))!=number or not stat.S_ISCHR(s.st_mode): "
           "print('not',n)\n"
           "print(os.path.isdir('/dev') and not os.path.islink('/dev'), os.path.exists('/dev/console'))\n"),
      "True False\n");
  // Files that describe the machine and other tenants are missing, unreadable or empty.
  EXPECT_EQ(
      said(x(),
           "for n in ('kcore','keys','timer_list','timer_stats','sched_debug','latency_stats','scsi','acpi',"
           "'asound'):\n"
           "  p='/proc/'+n\n"
           "  try: got=' '.join(os.listdir(p)) if os.path.isdir(p) else open(p,'rb').read(4096)\n"
           "  except OSError: continue\n"
           "  if got: print(p,got[:200])\n"
           "try:\n"
           "  if any(l.split()[0].strip('0') for l in open('/proc/kallsyms')): print('addresses')\n"
           "except OSError: pass\n"),
      "");
}

}  // namespace
}  // namespace isogate::test
