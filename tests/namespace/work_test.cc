#include "tests/namespace/boxes.h"

// Ordinary work works as it does anywhere.
namespace isogate::test {
namespace {

class Work : public Boxes {
 protected:
  // False, and skipped, where this host does not have the program.
  bool has(const std::string& program) { return x().run("command -v " + program).at("exit_code") == 0; }
};

TEST_F(Work, ShellsAndTools) {
  EXPECT_EQ(
      x().out("set -o pipefail; seq 3 | sort -r | tr '\\n' ' '; cat <(echo sub) <<< here; echo $((2**5)); "
              "f=$(mktemp) && echo t > $f && cat $f; date +%Z >/dev/null; perl -e 'print 6*7, qq(\\n)'; awk "
              "'BEGIN{print 1}'"),
      "3 2 1 sub\n32\nt\n42\n1\n");
  EXPECT_EQ(x().run("kill -TERM $$; sleep 1").at("signal"), "SIGTERM");
  EXPECT_EQ(x().run("sleep 100 & kill %1; wait %1; echo $?").at("stdout"), "143\n");
}

TEST_F(Work, Git) {
  EXPECT_EQ(x().out("git init -q a && cd a && git config user.email a@b && git config user.name n && echo x "
                    "> f && git add f "
                    "&& git commit -qm one && cd .. && git clone -q a b && git -C b log --format=%s && git "
                    "-C b gc -q && git -C b fsck"),
            "one\n");
}

TEST_F(Work, CompilersAndMake) {
  if (!has("gcc")) GTEST_SKIP() << "no gcc here";
  ASSERT_TRUE(succeeded(
      x().write("m.c",
                "#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void *a) { puts(\"in a "
                "thread\"); return a; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); "
                "return pthread_join(t, 0); }\n")));
  ASSERT_TRUE(succeeded(x().write("Makefile", "m: m.c\n\tgcc -O1 -o $@ $< -pthread\n")));
  const Json built = x().run("make -s && ./m", {{"timeout_sec", 60}});
  EXPECT_EQ(built.at("stdout"), "in a thread\n") << built;
}

TEST_F(Work, Python) {
  const std::string code =
      "import asyncio,multiprocessing as mp,sqlite3,subprocess,tempfile\n"
      "from multiprocessing import shared_memory\n"
      "def f(x): return x*x\n"
      "if __name__=='__main__':\n"
      "  with mp.Pool(3) as p: print(p.map(f,range(4)))\n"
      "  s=shared_memory.SharedMemory(create=True,size=10); s.close(); s.unlink()\n"
      "  c=sqlite3.connect('x.db'); c.execute('create table t(a)'); c.commit()\n"
      "  asyncio.run(asyncio.sleep(0.01)); print(subprocess.run(['echo','sub'],capture_output=True).stdout)\n"
      "  print(tempfile.gettempdir())\n";
  ASSERT_TRUE(succeeded(x().write("p.py", code)));
  const Json ran = x().run("/usr/bin/python3 p.py", {{"timeout_sec", 60}});
  EXPECT_EQ(ran.at("stdout"), "[0, 1, 4, 9]\nb'sub\\n'\n/tmp\n") << ran;
  if (x().run("/usr/bin/python3 -c 'import ensurepip'").at("exit_code") != 0)
    GTEST_SKIP() << "no python3-venv here";
  EXPECT_EQ(x().run("/usr/bin/python3 -m venv v && v/bin/python -c 'import sys; print(sys.prefix)' && "
                    "v/bin/pip --version | "
                    "cut -c1-3",
                    {{"timeout_sec", 120}})
                .at("stdout"),
            "/workspace/v\npip\n");
}

TEST_F(Work, NodeAndNpm) {
  if (!has("node")) GTEST_SKIP() << "no node here";
  EXPECT_EQ(
      x().run_argv({"node", "-e", "new (require('worker_threads').Worker)('console.log(6*7)',{eval:true})"},
                   {{"timeout_sec", 60}})
          .at("stdout"),
      "42\n");
  if (!has("npm")) GTEST_SKIP() << "no npm here";
  EXPECT_EQ(
      x().run("npm init -y >/dev/null && node -p 'require(\"./package.json\").name'", {{"timeout_sec", 60}})
          .at("stdout"),
      "workspace\n");
}

TEST_F(Work, Java) {
  if (!has("java")) GTEST_SKIP() << "no java here";
  const Json ran = x().run("java -version 2>&1 | grep -c -i openjdk", {{"timeout_sec", 60}});
  EXPECT_EQ(ran.at("exit_code"), 0) << ran;
}

TEST_F(Work, ArchivesAndLoopback) {
  EXPECT_EQ(x().out("mkdir -p d/e && echo x > d/e/f && ln -s f d/e/l && tar czf t.tgz d && mkdir o && tar "
                    "xzf t.tgz -C o && "
                    "cat o/d/e/l && cp -a d d2 && diff -r d d2 && echo same"),
            "x\nsame\n");
  const Json served = x().run(
      "echo served > page; /usr/bin/python3 -m http.server 8123 >/dev/null 2>&1 & for i in $(seq 50); do "
      "curl -s http://localhost:8123/page && break; sleep 0.1; done",
      {{"timeout_sec", 20}});
  EXPECT_EQ(served.at("stdout"), "served\n") << served;
}

TEST_F(Work, ATerminalIsOne) {
  EXPECT_EQ(x().out("script -qec 'test -t 0 && stty size >/dev/null && tty' /dev/null | tr -d '\\r'"),
            "/dev/pts/0\n");
}

TEST_F(Work, DebuggersWorkWhereTheyAreAllowed) {
  const auto own = another("    config: {profile: debug}");
  const Caller me(*own, "debug");
  EXPECT_EQ(me.run_argv(python("print(call(101,0,0,0,0))")).at("stdout"), "0\n") << "PTRACE_TRACEME";
  EXPECT_NE(own->log().find("relaxation: profile: debug"), std::string::npos) << own->log();
  EXPECT_NE(me.get("/backends").text.find("relaxed: profile: debug"), std::string::npos);
}

// The response reports what the exec used.
TEST_F(Work, WhatItCostIsReported) {
  const Json spun = x().run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done");
  EXPECT_GT(spun.at("cpu_ms").get<double>(), 20.0);
  const Json grown = x().run_argv({"/usr/bin/python3", "-c", "x=bytearray(60<<20)"});
  EXPECT_GT(grown.at("max_rss_bytes").get<uint64_t>(), 60u << 20);
  EXPECT_LT(grown.at("max_rss_bytes").get<uint64_t>(), 120u << 20);
}

}  // namespace
}  // namespace isogate::test
