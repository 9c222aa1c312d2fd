#include <signal.h>
#include <unistd.h>

#include <set>
#include <sstream>
#include <thread>

#include "tests/eventually.h"
#include "tests/local/plugin.h"

namespace isogate::test {
namespace {

class LocalExec : public Local {
 protected:
  LocalExec() : backend_(state_, "local"), box_(backend_) {
    if (box_.it == nullptr) throw std::runtime_error(box_.error);
  }
  Backend backend_;
  Box box_;
};

void send_control(int fd, uint32_t type, uint32_t a, uint32_t b = 0) {
  const isogate_control record{type, a, b, 0};
  EXPECT_EQ(::write(fd, &record, sizeof record), static_cast<ssize_t>(sizeof record));
}

TEST_F(LocalExec, KeepsStdoutAndStderrApartAndReportsTheExitCode) {
  const Ran ran = box_.sh("echo out; echo err >&2; exit 7");
  ASSERT_EQ(ran.status, ISOGATE_OK) << ran.error;
  EXPECT_EQ(ran.out, "out\n");
  EXPECT_EQ(ran.err, "err\n");
  EXPECT_EQ(ran.result.exit_code, 7);
  EXPECT_EQ(ran.result.term_signal, 0);
  EXPECT_EQ(ran.result.flags, ISOGATE_RESULT_PROVEN);
  EXPECT_GT(ran.result.wall_ns, 0U);
}

TEST_F(LocalExec, ReportsSignalsAndWhatCouldNotStart) {
  EXPECT_EQ(box_.sh("kill -SEGV $$").result.term_signal, SIGSEGV);
  Exec exec;
  exec.argv = {"no-such-program-here"};
  Ran ran = box_.run(exec);
  EXPECT_EQ(ran.status, ISOGATE_OK) << ran.error;
  EXPECT_EQ(ran.result.exit_code, 127);
  EXPECT_EQ(ran.result.os_errno, ENOENT);
  EXPECT_NE(ran.result.flags & ISOGATE_RESULT_NOT_STARTED, 0U);
  ASSERT_EQ(box_.write("plain", "text"), ISOGATE_OK);
  exec.argv = {"./plain"};
  ran = box_.run(exec);
  EXPECT_EQ(ran.result.exit_code, 126);
}

TEST_F(LocalExec, SignalsReachTheProgram) {
  Exec exec;
  exec.argv = {"/bin/bash", "-c", "trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.05; done"};
  exec.beside = [](Fd&, int control, int, const std::function<std::string()>& output) {
    EXPECT_TRUE(eventually(10, [&] { return output() == "ready\n"; }));
    send_control(control, 99, 1);  // unknown: skipped
    send_control(control, ISOGATE_CONTROL_SIGNAL, SIGUSR1);
  };
  const Ran ran = box_.run(exec);
  EXPECT_EQ(ran.out, "ready\ngot\n");
  EXPECT_EQ(ran.result.exit_code, 3);
}

TEST_F(LocalExec, CancelledBeforeTheStartNothingRuns) {
  auto cancel = make_event();
  signal_event(cancel->get());
  const isogate_call call = call_with(cancel->get());
  const std::string touch = "touch", name = "made";
  const isogate_str argv[] = {str(touch), str(name)};
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.argv = argv;
  request.argc = 2;
  request.stdin_fd = request.stdout_fd = request.stderr_fd = request.control_fd = -1;
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  isogate_error error = no_error();
  EXPECT_EQ(backend_.api->exec(box_.it, &call, &request, &result, &error), ISOGATE_CANCELLED)
      << error.message;
  EXPECT_EQ(box_.read("made").first, ISOGATE_NOT_FOUND);
}

TEST_F(LocalExec, TheEnvironmentIsExact) {
  Exec exec;
  exec.argv = {"/usr/bin/env", "-0"};
  exec.env = {{"A", "1"}, {"B", "x=y\nz"}, {"EMPTY", ""}};
  ::setenv("ISOGATE_SECRET", "leak", 1);
  const Ran ran = box_.run(exec);
  ::unsetenv("ISOGATE_SECRET");
  std::set<std::string> got;
  std::istringstream stream(ran.out);
  for (std::string line; std::getline(stream, line, '\0');) got.insert(line);
  const std::string workspace = state_ + "/sandboxes/" + box_.id + "/workspace";
  std::set<std::string> expected = {"A=1",
                                    "B=x=y\nz",
                                    "EMPTY=",
                                    "HOME=" + workspace,
                                    "WORKSPACE=" + workspace,
                                    "SHELL=/bin/bash",
                                    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  std::set<std::string> names;
  for (auto entry = got.begin(); entry != got.end();) {
    const bool name = entry->rfind("USER=", 0) == 0 || entry->rfind("LOGNAME=", 0) == 0;
    if (name) names.insert(entry->substr(entry->find('=') + 1));
    entry = name ? got.erase(entry) : std::next(entry);
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(names.size(), 1U);
  EXPECT_TRUE(!is_root_user() || *names.begin() == "agent");
}

TEST_F(LocalExec, WhatTheCallerGivesIsNotReplaced) {
  Exec exec;
  exec.argv = {"/bin/sh", "-c", "echo $HOME $USER $LOGNAME $SHELL $WORKSPACE $PATH"};
  exec.env = {{"HOME", "h"},  {"USER", "u"},      {"LOGNAME", "l"},
              {"SHELL", "s"}, {"WORKSPACE", "w"}, {"PATH", "p"}};
  EXPECT_EQ(box_.run(exec).out, "h u l s w p\n");
}

TEST_F(LocalExec, MalformedEnvironmentsAreRefused) {
  for (const std::string& name : {std::string(), std::string("A=B"), std::string("A\0B", 3)}) {
    Exec exec;
    exec.argv = {"true"};
    exec.env = {{name, "x"}};
    EXPECT_EQ(box_.run(exec).status, ISOGATE_INVALID_ARGUMENT);
  }
  Exec exec;
  exec.argv = {"true"};
  exec.env = {{"A", std::string("x\0y", 3)}};
  EXPECT_EQ(box_.run(exec).status, ISOGATE_INVALID_ARGUMENT);
  exec.env.clear();
  exec.argv = {"echo", std::string("x\0y", 3)};
  EXPECT_EQ(box_.run(exec).status, ISOGATE_INVALID_ARGUMENT);
  exec.argv.clear();
  EXPECT_EQ(box_.run(exec).status, ISOGATE_INVALID_ARGUMENT);
}

TEST_F(LocalExec, TheToolchainComesFirstInAnyPath) {
  Backend::toolchain = "/opt/tools/bin";
  Backend other(state_, "with-tools");
  Box box(other, 2);
  EXPECT_EQ(box.sh("echo $PATH").out,
            "/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
  Exec exec;
  exec.argv = {"/bin/sh", "-c", "echo $PATH"};
  exec.env = {{"PATH", "/bin"}};
  EXPECT_EQ(box.run(exec).out, "/opt/tools/bin:/bin\n");
  exec.env = {{"PATH", ""}};
  EXPECT_EQ(box.run(exec).out, "/opt/tools/bin\n");
}

TEST_F(LocalExec, TheWorkingDirectoryIsInTheWorkspace) {
  const std::string workspace = state_ + "/sandboxes/" + box_.id + "/workspace";
  ASSERT_EQ(box_.sh("mkdir -p a/b; ln -s a alias; ln -s / out; touch f; test \"$PWD\" = \"$WORKSPACE\"")
                .result.exit_code,
            0);
  Exec exec;
  exec.argv = {"/bin/pwd", "-P"};
  for (const auto& [cwd, expected] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                      {".", ""},
                                                                                      {"/workspace", ""},
                                                                                      {"a/b", "/a/b"},
                                                                                      {"/workspace/a", "/a"},
                                                                                      {"alias/b", "/a/b"}}) {
    exec.cwd = cwd;
    EXPECT_EQ(box_.run(exec).out, workspace + expected + "\n") << cwd;
  }
  for (const char* cwd : {"..", "a/../..", "absent", "f", "out", "out/tmp", "/", "/tmp", "/proc/self/cwd"}) {
    exec.cwd = cwd;
    const Ran ran = box_.run(exec);
    EXPECT_EQ(ran.status, ISOGATE_INVALID_ARGUMENT) << cwd;
    EXPECT_EQ(ran.error.find(state_), std::string::npos) << ran.error;
  }
}

TEST_F(LocalExec, ProgramsHaveTheSandboxsIdentityAndNoPrivilege) {
  const Ran ran = box_.sh("id -u; id -g; id -G; grep -E '^Cap' /proc/self/status | cut -f2 | sort -u");
  const std::string uid = std::to_string(is_root_user() ? box_.info.uid : ::geteuid());
  const std::string gid = std::to_string(is_root_user() ? box_.info.uid : ::getegid());
  EXPECT_EQ(ran.out.substr(0, ran.out.find('\n')), uid);
  if (!is_root_user()) GTEST_SKIP() << "an ordinary user's programs keep its groups";
  EXPECT_EQ(ran.out, uid + "\n" + gid + "\n" + gid + "\n0000000000000000\n");
  EXPECT_GE(box_.info.uid, 10000U);
  EXPECT_LT(box_.info.uid, 70000U);
}

TEST_F(LocalExec, AnotherUserIsTakenOnlyByRoot) {
  Exec exec;
  exec.argv = {"/bin/sh", "-c", "id -u; echo $USER"};
  exec.user = "nobody";
  if (!is_root_user()) {
    EXPECT_EQ(box_.run(exec).status, ISOGATE_UNSUPPORTED);
    EXPECT_EQ(box_.read("f", 0, "nobody").first, ISOGATE_UNSUPPORTED);
    return;
  }
  for (const char* user : {"no-such-user-here", "-1", "4294967295", "4294967296", "0x0", " 0", ""}) {
    exec.user = user;
    const Ran ran = box_.run(exec);
    if (*user != '\0') {
      EXPECT_EQ(ran.status, ISOGATE_NOT_FOUND) << user;
    }
  }
  ASSERT_EQ(box_.sh("chmod 755 .").result.exit_code, 0);
  exec.user = "nobody";
  EXPECT_EQ(box_.run(exec).out, "65534\nnobody\n");
  exec.user = "54321";
  EXPECT_EQ(box_.run(exec).out, "54321\nagent\n");
  EXPECT_EQ(box_.write("f", "x"), ISOGATE_OK);
  EXPECT_EQ(box_.read("f", 0, "nobody").second, "x");
  EXPECT_EQ(box_.write("g", "x", "nobody"), ISOGATE_PERMISSION_DENIED);
}

TEST_F(LocalExec, LimitsBindTheExecOrAreRefused) {
  isogate_probe probe{};
  probe.struct_size = sizeof probe;
  const isogate_call call = call_with();
  isogate_error error = no_error();
  ASSERT_EQ(backend_.api->probe(backend_.it, &call, &probe, &error), ISOGATE_OK) << error.message;
  Exec exec;
  exec.argv = {"/bin/bash", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; wait"};
  exec.limits.set(ISOGATE_LIMIT_PIDS, 6);
  Ran ran = box_.run(exec);
  if ((probe.capabilities & ISOGATE_CAP_LIMIT_PIDS) == 0) {
    EXPECT_EQ(ran.status, ISOGATE_UNSUPPORTED);
  } else {
    EXPECT_NE(ran.err.find("fork"), std::string::npos) << ran.err;
  }
  exec.argv = {"/usr/bin/python3", "-c", "x = bytearray(300 << 20)"};
  exec.limits = {};
  exec.limits.set(ISOGATE_LIMIT_MEMORY_BYTES, 64 << 20);
  ran = box_.run(exec);
  if ((probe.capabilities & ISOGATE_CAP_LIMIT_MEMORY) == 0) {
    EXPECT_EQ(ran.status, ISOGATE_UNSUPPORTED);
  } else {
    EXPECT_NE(ran.result.flags & ISOGATE_RESULT_OOM_KILLED, 0U) << ran.error;
  }
  exec.limits = {};
  exec.limits.set(ISOGATE_LIMIT_DISK_BYTES, 1 << 20);
  EXPECT_EQ(box_.run(exec).status, ISOGATE_UNSUPPORTED);
}

TEST_F(LocalExec, LimitsWithoutCgroupsAreRefused) {
  Backend other(state_, "no-groups", R"({"cgroups": "never"})");
  Box box(other, 3);
  Exec exec;
  exec.argv = {"true"};
  exec.limits.set(ISOGATE_LIMIT_MEMORY_BYTES, 64 << 20);
  EXPECT_EQ(box.run(exec).status, ISOGATE_UNSUPPORTED);
  EXPECT_EQ(box.sh("sleep 985 & echo hi").out, "hi\n");
}

TEST_F(LocalExec, ManyAtOnceDoNotMix) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const std::string mark = std::to_string(t) + "." + std::to_string(i);
        EXPECT_EQ(box_.sh("echo " + mark).out, mark + "\n");
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace isogate::test
