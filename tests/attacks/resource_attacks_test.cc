#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/attacks/attack.h"

// Group R, and R's side of P. The limits are each backend's own defaults, unless a case asks for
// some.
namespace isogate::test {
namespace {

TEST_F(ResourceAttack, R56_FullScratchCostsOneself) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  // A pod has its /tmp on its node's disk, which has no limit that a write reaches.
  std::vector<std::string> places = {"/dev/shm"};
  if (backend() != "k8s") places.emplace_back("/tmp");
  for (const std::string& place : places) {
    const Answer filled = x().post("/exec", {{"argv", python("chunk=b'x'*(1<<20); n=0\n"
                                                             "f=open('" +
                                                             place +
                                                             "/full','wb',0)\n"
                                                             "try:\n"
                                                             "  while n<2048: n+=f.write(chunk)>>20\n"
                                                             "except OSError as e: print(e.errno)\n"
                                                             "print(n<600)")},
                                             {"timeout_sec", 60}});
    const bool out_of_memory =
        filled.status == 502 || (filled.status == 200 && filled.body.at("outcome") == "oom_killed");
    if (!out_of_memory) {
      ASSERT_TRUE(succeeded(filled)) << place;
      EXPECT_EQ(filled.body.at("stdout"), "28\nTrue\n")
          << place << ": it is full, or its owner is out of memory";
    }
    EXPECT_EQ(said(x(), "x=bytearray(64<<20)\nfor i in range(0,len(x),4096): x[i]=1\nprint(len(x)>>20)"),
              "64\n")
        << place << " holds the memory of the next exec";
    EXPECT_EQ(said(y(), "n=open('" + place + "/y','wb',0).write(b'y'*(8<<20)); print(n>>20)"), "8\n")
        << place;
    if (backend() == "namespace" && place == "/dev/shm") {
      EXPECT_EQ(x().out("ls -A " + place), "") << "the next exec starts clean";
    }
    EXPECT_EQ(x().out("rm -f " + place + "/full; head -c 30M /dev/zero > " + place + "/next && echo fits"),
              "fits\n");
  }
}

// What an exec leaves in memory without a process: files of tmpfs, segments of System V.
TEST_F(ResourceAttack, R56_R65_WhatAnExecLeavesInMemoryStopsNoOther) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  const auto gateway = another("limits: {memory_mb: 96}");
  const Caller me(*gateway, "hoarder");
  if (const Answer answer = me.exec("true"); answer.status != 200)
    GTEST_SKIP() << "no limit of memory here: " << answer.text;
  const std::string fill =
      "def fill(p):\n"
      "  try:\n"
      "    f=open(p+'/full','wb',0)\n"
      "    for i in range(256): f.write(b'x'*(1<<20))\n"
      "  except OSError: pass\n";
  const std::vector<std::string> hoards = {
      fill + "fill('/dev/shm')\n",
      fill + (backend() != "k8s" ? "fill('/tmp')\nfill('/dev/shm')\n" : "fill('/dev/shm')\n"),
      "libc.shmat.restype=ctypes.c_void_p\n"
      "for i in range(256):\n"
      "  n=call(29,0,1<<20,0o1600)\n"
      "  if n<0: break\n"
      "  a=libc.shmat(n,None,0)\n"
      "  if a in (None,2**64-1): break\n"
      "  ctypes.memset(a,1,1<<20)\n",
      "for i in range(30000):\n"  // message queues: kernel memory
      "  q=call(68,0,0o1600)\n"
      "  if q<0 or call(69,q,struct.pack('q',1)+b'x'*8000,8000,0o4000)<0: break\n"};
  for (const std::string& hoard : hoards) {
    const Answer ended = me.post("/exec", {{"argv", python(hoard)}, {"timeout_sec", 60}});
    EXPECT_TRUE(ended.status == 200 || refused(ended, 502, "outcome_unknown")) << hoard << ended.text;
    Answer next;
    const auto has_room = [&] {
      next = me.post("/exec", {{"argv", python("x=bytearray(16<<20)\n"
                                               "for i in range(0,len(x),4096): x[i]=1\n"
                                               "print(len(x)>>20)")}});
      return next.status == 200 && next.body.value("stdout", "") == "16\n";
    };
    // The kernel frees an IPC namespace a moment after its last program.
    EXPECT_TRUE(eventually(10, has_room)) << hoard << next.text;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(has_room()) << hoard << next.text;
    me.exec("rm -f /tmp/full /dev/shm/full");
  }
}

// Each writes until it is refused; a bound ends what is never refused.
const char* const kDiskHoards[] = {
    "f=open('big','wb',0)\nwhile n<4096: n+=f.write(b'x'*(1<<20))>>20\n",
    "while n<1000000: n+=1; open(str(n),'w').close()\n",
    "while n<1000000: n+=1; os.mkdir(str(n))\n",
    "open('0','w').close()\n"
    "while n<60000: n+=1; os.link('0','a-name-that-is-as-long-as-it-may-be-'+'x'*200+str(n))\n"
    "raise OSError(28,'')\n",  // links are bounded by their directory, or by what a file may have
    "f=open('gone','wb',0); os.unlink('gone')\nwhile n<4096: n+=f.write(b'x'*(1<<20))>>20\n",
    "f=open('holes','wb',0); os.truncate('holes',1<<40)\n"
    "while n<4096: n+=1; os.pwrite(f.fileno(),b'x'*(1<<20),n<<24)\n",
    "while n<100000: n+=1; open(str(n),'w').close(); os.setxattr(str(n),'user.hoard',b'x'*3000)\n",
};

TEST_F(ResourceAttack, R57_AFullDiskStopsNobodyElse) {
  if (!isolates() || backend() == "k8s") GTEST_SKIP() << "its workspaces are on no file system of their own";
  const auto gateway = another("config: {workspace_fs: loop, disk_mb: 32}");
  const Caller me(*gateway, "hoarder");
  if (const Answer answer = me.exec("true"); answer.status != 200)
    GTEST_SKIP() << "no file systems of their own here: " << answer.text;
  int others = 0;
  for (const std::string hoard : kDiskHoards) {
    const std::string code =
        "n=0\ntry:\n  exec(" + Json(hoard).dump() + ")\nexcept OSError as e: print(e.errno)";
    const Json ended = me.run_argv(python("import os\n" + code), {{"timeout_sec", 90}});
    EXPECT_TRUE(ended.at("stdout") == "28\n" || ended.at("stdout") == "122\n") << hoard << ended;
    const Caller another_one(*gateway, "other-" + std::to_string(++others));
    EXPECT_EQ(another_one.out("head -c 8M /dev/zero > mine && echo fits"), "fits\n") << hoard;
    EXPECT_TRUE(succeeded(another_one.write("file", "kept"))) << hoard;
    EXPECT_EQ(another_one.content("file"), "kept") << hoard;
    EXPECT_TRUE(succeeded(me.post("/workspace/list", {{"path", "."}}))) << hoard;
    EXPECT_EQ(me.out("find . -mindepth 1 -delete; head -c 8M /dev/zero > next && echo fits; rm next"),
              "fits\n")
        << hoard << ": what is removed makes room";
    EXPECT_TRUE(succeeded(another_one.call("DELETE", "/sandboxes/" + another_one.agent() + "?purge=true")));
  }
}

TEST_F(ResourceAttack, R57_UploadsAtOnceShareTheLimit) {
  if (backend() == "k8s") GTEST_SKIP() << "a pod that outgrows its disk is ended";
  const auto gateway = another("limits: {disk_mb: 32, mode: best_effort}");
  const Caller me(*gateway, "uploader");
  EXPECT_EQ(me.out("echo ready"), "ready\n");
  const std::string part(6 << 20, 'x');
  std::atomic<int> stored{0}, refusals{0};
  std::vector<std::thread> uploads;
  for (int i = 0; i < 12; ++i)
    uploads.emplace_back([&, i] {
      const Answer answer = me.call("PUT", me.file_url("part-" + std::to_string(i)), {}, part);
      if (answer.status == 200 || answer.status == 201) ++stored;
      if (answer.status == 507) ++refusals;
    });
  // A program writes at the same time, too; no upload is stored in part because of it.
  me.run("head -c 8M /dev/zero > of-program");
  for (std::thread& upload : uploads) upload.join();
  EXPECT_EQ(stored + refusals, 12);
  EXPECT_GE(refusals, 7) << "more than the limit was taken";
  EXPECT_GE(stored, 1);
  const int there = std::stoi(me.out("find . -name 'part-*' -size 6291456c | wc -l"));
  EXPECT_EQ(there, stored) << "every stored file is complete";
  EXPECT_EQ(me.out("find . -name 'part-*' | wc -l"), std::to_string(there) + "\n");
}

TEST_F(ResourceAttack, R59_KernelObjectsAreBoundedPerAgent) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  const std::string code =
      "import resource,time\n"
      "h=resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
      "resource.setrlimit(resource.RLIMIT_NOFILE,(h,h))\n"
      "def many(make):\n"
      "  kept=[]\n"
      "  try:\n"
      "    while len(kept)<100000: kept.append(make())\n"
      "  except OSError as e:\n"
      "    n=len(kept)\n"
      "    for k in kept:\n"
      "      for fd in (k if isinstance(k,tuple) else (k,)): os.close(fd) if isinstance(fd,int) else "
      "fd.close()\n"
      "    return e.errno in (24,12) and n<=16384\n"
      "  return len(kept)\n"
      "def watch():\n"
      "  n=call(294,0)\n"
      "  if n<0: raise OSError(-n,'')\n"
      "  return n\n"
      "print(many(lambda: os.dup(0)),many(os.pipe),many(lambda: os.eventfd(0)),"
      "many(lambda: socket.socket(socket.AF_UNIX)),many(lambda: socket.socket(socket.AF_INET)),"
      "many(lambda: os.memfd_create('m')),flush=True)\n";
  EXPECT_EQ(said(x(), code, {{"timeout_sec", 60}}), "True True True True True True\n");
  if (filters_calls()) {
    EXPECT_EQ(said(x(), "r,w=os.pipe(); print(call(72,w,1031,1<<20))"), "-1\n") << "pipes keep their size";
  }
  if (!gives_uids()) GTEST_SKIP() << "pods share a uid, and inotify is bounded per user of a node";
  // Bounded for the whole machine, per user: held while the other agent takes some.
  ExecStream hoard(x(), {{"argv", python(code + "kept=[]\n"
                                                "try:\n"
                                                "  while True: kept.append(watch())\n"
                                                "except OSError as e: print(e.errno,len(kept)>0,flush=True)\n"
                                                "time.sleep(60)")},
                         {"timeout_sec", 90}});
  ASSERT_EQ(hoard.next()->at("event"), "start");
  std::string all;
  while (all.find("24 True\n") == std::string::npos) {
    const auto event = hoard.next();
    ASSERT_TRUE(event && event->at("event") == "stdout") << all;
    all += bytes_of(*event, "data");
  }
  EXPECT_EQ(said(x(), "print(call(294,0)<0)"), "True\n") << "the bound is not its user's";
  EXPECT_EQ(said(y(), "print(call(294,0)>0)"), "True\n") << "another agent's are taken";
}

// The kernel has some thousand terminals for all.
TEST_F(ResourceAttack, R59_TerminalsAreBoundedPerAgent) {
  if (backend() != "namespace") GTEST_SKIP() << "what it opens is an engine's, or this host's";
  EXPECT_EQ(said(x(),
                 "kept=[]\n"
                 "try:\n"
                 "  while len(kept)<100: kept.append(os.open('/dev/ptmx',os.O_RDWR|os.O_NOCTTY))\n"
                 "except OSError as e: print(e.errno)\n"
                 "print(len(kept))\n"),
            "28\n16\n");
}

TEST_F(ResourceAttack, R60_R61_FloodsAreDrained) {
  const long size = backend() == "k8s" ? 30 << 20 : 150 << 20;
  const std::string n = std::to_string(size);
  x().run("true");
  const pid_t front = front_of(gateway()), host = host_of(gateway(), backend());
  const long of_front = resident_kib(front), of_host = resident_kib(host);
  struct Flood {
    std::string command;
    long out, err;
  };
  const Flood floods[] = {
      {"yes | head -c " + n + "; yes | head -c " + n + " >&2", size, size},
      {"head -c " + n + " /dev/zero >&2", 0, size},
      {"head -c " + n + " /dev/urandom", size, 0},
      {"exec /usr/bin/python3 -c 'import os\nfor i in range(20000): os.write(1,b\"o\"); os.write(2,b\"e\")'",
       20000, 20000}};
  for (const Flood& each : floods) {
    const Json flood = x().run(each.command, {{"timeout_sec", 90}});
    EXPECT_EQ(flood.at("outcome"), "exited") << each.command;
    EXPECT_EQ(flood.at("stdout_bytes"), each.out) << each.command;
    EXPECT_EQ(flood.at("stderr_bytes"), each.err) << each.command;
    EXPECT_EQ(flood.at("truncated"), each.out > 131072 || each.err > 131072) << each.command;
  }
  EXPECT_LT(resident_kib(front) - of_front, kib_bound(20000));
  EXPECT_LT(resident_kib(host) - of_host, kib_bound(20000));
}

TEST_F(ResourceAttack, R63_APriorityAboveOthersIsRefused) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  // Tried by the calls themselves, and looked at afterwards: a tool may be missing, or lie.
  EXPECT_EQ(
      said(x(),
           "was=os.getpriority(os.PRIO_PROCESS,0),os.sched_getscheduler(0)\n"
           "def attempt(what):\n"
           "  try: what(); return 0\n"
           "  except OSError as e: return e.errno in (1,13,38)\n"
           "print(attempt(lambda: os.setpriority(os.PRIO_PROCESS,0,-20)),"
           "attempt(lambda: os.setpriority(os.PRIO_USER,os.getuid(),-20)),"
           "attempt(lambda: os.nice(-20)),"
           "attempt(lambda: os.sched_setscheduler(0,os.SCHED_FIFO,os.sched_param(99))),"
           "attempt(lambda: os.sched_setscheduler(0,os.SCHED_RR,os.sched_param(1))),"
           "call(251,1,0,1<<13) in (-1,-38),"
           // SCHED_DEADLINE
           "call(314,0,struct.pack('IIQiIQQQ',48,6,0,0,0,10**7,10**8,10**8),0) in (-1,-38))\n"
           "print(was==(os.getpriority(os.PRIO_PROCESS,0),os.sched_getscheduler(0)),was[0]>=0,was[1])\n"),
      "True True True True True True True\nTrue True 0\n");
  ExecStream spinning(x(), {{"command", "for i in $(seq 100); do while :; do :; done & done; echo up; wait"},
                            {"timeout_sec", 60}});
  ASSERT_EQ(spinning.next()->at("event"), "start");
  ASSERT_EQ(spinning.next()->at("data"), "up\n");
  y().run("true");
  std::vector<double> took;
  for (int i = 0; i < 11; ++i)
    took.push_back(seconds_of([&] { EXPECT_EQ(y().run("echo served").at("stdout"), "served\n"); }));
  std::sort(took.begin(), took.end());
  EXPECT_LT(took[5], 2.0) << "another agent waits for the spinning programs";
  spinning.connection.close();
  // A container that is late is killed from outside, with what is begun meanwhile.
  EXPECT_TRUE(eventually(30, [&] { return x().exec("true").status == 200; }));
}

// sync(2) and the like report success and flush nothing, even on an invalid descriptor.
TEST_F(ResourceAttack, R64_SyncFlushesNothing) {
  if (!filters_calls()) GTEST_SKIP() << (isolates() ? kRuntimesFilter : kNoIsolation);
  EXPECT_EQ(said(x(), "print(call(162),call(306,-1))"), "0 0\n");
  EXPECT_EQ(said_here("print(call(306,-1))"), "-9\n");
  // What was just written stays dirty, where cachestat(2) can tell: not on a tmpfs, nor before Linux 6.5.
  EXPECT_EQ(said(x(),
                 "f=open('dirty','wb',0); f.write(b'x'*(1<<20))\n"
                 "def dirty():\n"
                 "  s=(ctypes.c_uint64*5)()\n"
                 "  return call(451,f.fileno(),(ctypes.c_uint64*2)(0,1<<20),s,0)==0 and s[1]>0\n"
                 "before=dirty(); call(162); print(dirty()==before)\n"),
            "True\n");
}

// Memory outside of the heap is charged to its holder or refused, and is free again when the holder has
// ended.
TEST_F(ResourceAttack, R65_HoardsAreChargedOrRefused) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  const auto gateway = another("limits: {memory_mb: 128}");
  const Caller me(*gateway, "hoarder");
  if (const Answer answer = me.exec("true"); answer.status != 200)
    GTEST_SKIP() << "no limit of memory here: " << answer.text;
  const std::string hoards[] = {
      "import mmap\nkept=[]\n"
      "for i in range(512):\n"
      "  m=mmap.mmap(-1,1<<20); kept.append(m)\n"
      "  if call(149,ctypes.addressof(ctypes.c_char.from_buffer(m)),1<<20)<0: stop('mlock')\n",
      "for i in range(512):\n"
      "  if os.write(os.memfd_create('m'),b'x'*(1<<20))<=0: stop('memfd')\n",
      "import mmap\n"
      "for i in range(512):\n"
      "  try: m=mmap.mmap(-1,2<<20,mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS|0x40000); m[0]=1\n"
      "  except OSError: stop('huge')\n",
      "import resource\n"
      "h=resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE,(h,h))\n"
      "held=0\n"
      "for i in range(8000):\n"
      "  try: r,w=os.pipe()\n"
      "  except OSError: stop('pipes')\n"
      "  os.set_blocking(w,False)\n"
      "  held+=os.write(w,b'x'*65536)\n"
      "if held<200<<20: stop('smaller pipes')\n"};
  for (const std::string& hoard : hoards) {
    const Answer ended = me.post(
        "/exec",
        {{"argv", python("def stop(what): print('refused',what); sys.exit()\n" + hoard + "print('held')\n")},
         {"timeout_sec", 60}});
    if (ended.status == 200) {
      EXPECT_EQ(ended.body.at("stdout").get<std::string>().find("held"), std::string::npos)
          << hoard << ended.text;
      EXPECT_TRUE(ended.body.at("outcome") == "oom_killed" || ended.body.at("outcome") == "exited")
          << ended.text;
    } else {
      EXPECT_TRUE(refused(ended, 502, "outcome_unknown")) << hoard;
    }
    EXPECT_EQ(said(me, "x=bytearray(64<<20)\nfor i in range(0,len(x),4096): x[i]=1\nprint('free')"), "free\n")
        << hoard;
  }
}

TEST_F(ResourceAttack, R68_BombsOfDataEndAtTheirTimeout) {
  const std::string mark = new_mark();
  x().run(
      "head -c 20M /dev/zero | gzip > bomb.gz; for i in 1 2 3 4 5 6 7 8; do cat bomb.gz bomb.gz > b; mv b "
      "bomb.gz; done");
  for (const std::string& command :
       {"exec /usr/bin/python3 -c 'import re; re.match(\"(a+)+$\",\"a\"*60+\"b\")' " + mark,
        "while :; do zcat bomb.gz; done | wc -c " + std::string("; : ") + mark,
        "git init -q g; cd g; while :; do head -c 4M /dev/urandom | git hash-object -w --stdin; rm -rf "
        ".git/objects/??; done; : " +
            mark}) {
    Json ended;
    const double took = seconds_of([&] { ended = x().run(command, {{"timeout_sec", 2}}); });
    EXPECT_EQ(ended.at("outcome"), "timed_out") << command;
    EXPECT_EQ(ended.at("exit_code"), 124) << command;
    EXPECT_LT(took, 20) << command;
    EXPECT_TRUE(gone_within(3, mark)) << command;
  }
}

// The log of floods, crashes and refused calls does not grow with what a tenant writes.
TEST_F(ResourceAttack, R69_TheLogDoesNotGrowWithWhatTenantsWrite) {
  x().run("true");
  const size_t before = gateway().log().size();
  const std::string word = "flood" + new_mark();
  x().run("yes " + word.substr(0, 3) + word.substr(3) + " | head -c 20M; yes " + word + " | head -c 20M >&2",
          {{"timeout_sec", 60}});
  x().run_argv(python("import signal,resource\n"
                      "for i in range(300):\n"
                      "  if os.fork()==0:\n"
                      "    sys.stderr.write('" +
                      word +
                      "\\n'*50); sys.stderr.flush()\n"
                      "    os.kill(os.getpid(),signal.SIGSEGV)\n"
                      "  os.wait()\n"
                      "for i in range(100):\n"
                      "  if os.fork()==0: call(0x40000000+39); os._exit(0)\n"
                      "  os.wait()\n"),
               {{"timeout_sec", 60}});
  for (int i = 0; i < 10; ++i) x().run("kill -SEGV $$; echo " + word);
  const std::string log = gateway().log();
  EXPECT_EQ(log.find(word), std::string::npos) << "the log has what a program wrote";
  EXPECT_LT(log.size() - before, 12 * 1000u) << "some lines for each exec";
}

}  // namespace
}  // namespace isogate::test
