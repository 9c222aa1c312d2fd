// Limits without cgroups: a tree's use is sampled, and the tree is killed or slowed down.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "runner/exec/tree/process_usage.h"
#include "runner/exec/tree/sampled_tree.h"
#include "tests/runner/box.h"

namespace isogate::test {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMebibyte = 1 << 20;

Runner& bare_runner() {
  static const auto runner = [] {
    RunnerOptions none;
    none.use_cgroups = false;
    return Runner::make(none);
  }();
  return *runner;
}

Output run_sampled(const std::string& script, const Limits& limits, const std::string& mark = "") {
  Command command = shell(script, mark);
  command.limits = limits;
  command.limits_sampled = true;
  Output output = run_captured(bare_runner(), command);
  EXPECT_TRUE(output.ending.ok()) << output.ending.error().message;
  return output;
}

TEST(SampledLimits, AreAnAbilityOfTheirOwn) {
  const uint64_t found = bare_runner().abilities().capabilities;
  EXPECT_EQ(found & (ISOGATE_CAP_LIMIT_MEMORY | ISOGATE_CAP_LIMIT_CPU | ISOGATE_CAP_LIMIT_PIDS), 0u);
  for (const uint64_t sampled :
       {ISOGATE_CAP_LIMIT_MEMORY_SAMPLED, ISOGATE_CAP_LIMIT_CPU_SAMPLED, ISOGATE_CAP_LIMIT_PIDS_SAMPLED})
    EXPECT_NE(found & sampled, 0u);
}

TEST(SampledLimits, ATreeThatOutgrowsItsMemoryIsEndedWhole) {
  const std::string mark = new_mark();
  const auto output =
      run_sampled("sleep 100 & setsid sleep 100 & (ulimit -v 4000000; tail /dev/zero); sleep 100",
                  {{ISOGATE_LIMIT_MEMORY_BYTES, 64 * kMebibyte}}, mark);
  EXPECT_TRUE(output.ending->oom_killed);
  EXPECT_FALSE(output.ending->killed);
  EXPECT_EQ(output.ending->term_signal, SIGKILL);
  EXPECT_TRUE(marked(mark).empty());
}

// Each of five maps 40 MiB, and all of them together use 40.
TEST(SampledLimits, MemoryThatProcessesShareIsCountedOnce) {
  const auto output = run_sampled(
      R"(exec perl -e '$x = "x" x 41943040; for (1 .. 4) { if (!fork) { sleep 1; exit } } 1 while wait > 0; print "whole"')",
      {{ISOGATE_LIMIT_MEMORY_BYTES, 128 * kMebibyte}});
  EXPECT_FALSE(output.ending->oom_killed);
  EXPECT_EQ(output.out, "whole") << output.err;
}

TEST(SampledLimits, ATreeOfTooManyProcessesIsEndedWhole) {
  const std::string mark = new_mark();
  const auto output = run_sampled("for i in 1 2 3 4 5 6 7 8 9; do setsid sleep 100 & done; sleep 100",
                                  {{ISOGATE_LIMIT_PIDS, 5}}, mark);
  EXPECT_TRUE(output.ending->pids_exceeded);
  EXPECT_FALSE(output.ending->oom_killed);
  EXPECT_EQ(output.ending->term_signal, SIGKILL);
  EXPECT_TRUE(marked(mark).empty());
}

TEST(SampledLimits, WhatStaysWithinThemRunsOn) {
  const auto output = run_sampled("for i in 1 2 3; do sleep 0.2 & done; wait; echo fine",
                                  {{ISOGATE_LIMIT_MEMORY_BYTES, 64 * kMebibyte},
                                   {ISOGATE_LIMIT_CPU_MILLIS, 4000},
                                   {ISOGATE_LIMIT_PIDS, 5}});
  EXPECT_FALSE(output.ending->pids_exceeded || output.ending->oom_killed);
  EXPECT_EQ(output.out, "fine\n");
  EXPECT_EQ(output.ending->exit_code, 0);
}

TEST(SampledLimits, ATreeGetsItsShareOfTheProcessors) {
  const std::string spin = "sh -c 'while :; do :; done'";
  const auto output = run_sampled("timeout 3 " + spin + " & timeout 3 " + spin + "; wait; echo done",
                                  {{ISOGATE_LIMIT_CPU_MILLIS, 200}});
  EXPECT_EQ(output.out, "done\n");
  EXPECT_LT(output.ending->cpu_ns, output.ending->wall_ns * 2 / 5);
  EXPECT_GT(output.ending->cpu_ns, output.ending->wall_ns / 20);
}

// Reaped children are counted: short-lived processes do not escape the limit.
TEST(SampledLimits, WhatEndedChildrenUsedIsCounted) {
  const auto output = run_sampled(
      "timeout 3 sh -c 'while :; do (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done); done'; echo done",
      {{ISOGATE_LIMIT_CPU_MILLIS, 200}});
  EXPECT_EQ(output.out, "done\n");
  EXPECT_LT(output.ending->cpu_ns, output.ending->wall_ns / 2);
}

// Who ignores SIGCHLD waits for nobody, and the kernel adds the time of its children to no process.
TEST(SampledLimits, WhatChildrenUsedForWhomNobodyWaitsIsCounted) {
  const auto output = run_sampled(
      R"(perl -e '$SIG{CHLD} = "IGNORE"; $end = time + 3; while (time < $end) { if (!fork) { 1 while (times)[0] < 0.05; exit } wait; $n++ } print $n')",
      {{ISOGATE_LIMIT_CPU_MILLIS, 200}});
  ASSERT_NE(output.out, "") << output.err;
  EXPECT_LT(std::stoi(output.out), 30) << "of 0.05 s each, in 3 to 4 s: 20 % are at most 16";
}

TEST(SampledLimits, AProgramThatStoppedItselfStaysStopped) {
  const auto output = run_sampled(
      "sleep 100 & kill -STOP $!; timeout 1 sh -c 'while :; do :; done'; sed -n 's/^State:.//p' "
      "/proc/$!/status",
      {{ISOGATE_LIMIT_CPU_MILLIS, 100}});
  EXPECT_EQ(output.out, "T (stopped)\n");
}

TEST(SampledLimits, HoldThoughTheReaperWasStopped) {
  const auto output =
      run_sampled("kill -STOP $PPID; tail /dev/zero", {{ISOGATE_LIMIT_MEMORY_BYTES, 64 * kMebibyte}});
  EXPECT_TRUE(output.ending->oom_killed);
}

// Descriptors have run out: no file of /proc can be opened for a while.
TEST(SampledLimits, ATreeThatCannotBeLookedAtIsEndedAndItsEndNotKnown) {
  const std::string mark = new_mark();
  Command command = shell("sleep 100 & sleep 100", mark);
  command.limits.set(ISOGATE_LIMIT_PIDS, 50);
  command.limits_sampled = true;
  Output output;
  std::thread run([&] { output.ending = bare_runner().run(command); });
  EXPECT_TRUE(there_within(mark, 3, 30));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{3, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  std::this_thread::sleep_for(
      std::chrono::seconds(3));  // hundreds of samples; ten failures in a row are too many
  ::setrlimit(RLIMIT_NOFILE, &before);
  run.join();
  ASSERT_FALSE(output.ending.ok());
  EXPECT_EQ(output.ending.error().status, ISOGATE_LOST) << output.ending.error().message;
  EXPECT_TRUE(marked(mark).empty());
}

TEST(SampledLimits, AreNotTakenUnlessAskedFor) {
  Command command = shell("true");
  command.limits.set(ISOGATE_LIMIT_PIDS, 50);
  const auto refused = bare_runner().run(command);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, ISOGATE_UNSUPPORTED);
}

TEST(SampledLimits, TheKernelsAreTakenWhereTheyCanBeHad) {
  Runner& runner = shared_runner(Kind::reaper);
  if ((runner.abilities().capabilities & ISOGATE_CAP_LIMIT_PIDS) == 0)
    GTEST_SKIP() << runner.abilities().missing;
  Command command = shell("for i in 1 2 3 4 5 6 7 8 9; do sleep 100 & done; echo all");
  command.limits.set(ISOGATE_LIMIT_PIDS, 5);
  command.limits_sampled = true;
  const auto output = run_captured(runner, command);
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_FALSE(output.ending->pids_exceeded);
  EXPECT_NE(output.err.find("fork"), std::string::npos) << output.err;
}

TEST(CpuAllowance, HoldsUntilWhatWasTakenTooMuchIsMadeUpFor) {
  CpuAllowance half(500);
  EXPECT_TRUE(half.allows(milliseconds(10), milliseconds(4)));
  EXPECT_FALSE(half.allows(milliseconds(10), milliseconds(104)));  // 10 allowed, 104 used
  EXPECT_FALSE(half.allows(milliseconds(180), milliseconds(104)));
  EXPECT_TRUE(half.allows(milliseconds(40), milliseconds(104)));
}

TEST(CpuAllowance, KeepsATenthOfASecondOfWhatWasNotUsed) {
  CpuAllowance half(500);
  EXPECT_TRUE(half.allows(std::chrono::hours(1), milliseconds(0)));
  EXPECT_TRUE(half.allows(milliseconds(0), milliseconds(50)));
  EXPECT_FALSE(half.allows(milliseconds(0), milliseconds(51)));
}

TEST(ProcessStat, IsReadBehindANameOfAnyKind) {
  const auto usage = parse_process_stat(
      "7 (a) R 1 (b\n) T 1 7 7 0 -1 4194560 9 8 0 0 11 22 33 44 20 0 5 0 777 1000 321 18446744073709551615 "
      "0");
  ASSERT_TRUE(usage);
  EXPECT_TRUE(usage->stopped);
  EXPECT_EQ(usage->cpu_ticks, 33u);
  EXPECT_EQ(usage->waited_cpu_ticks, 77u);
  EXPECT_EQ(usage->tasks, 5u);
  EXPECT_EQ(usage->start_ticks, 777u);
  EXPECT_EQ(usage->resident_pages, 321u);
}

TEST(ProcessStat, OtherTextsAreInvalid) {
  for (const char* text :
       {"", "7", "7 (a)", "7 (a) R", "7 (a) R 1 7 7 0 -1 4194560 9 8 0 0 x 22 33 44 20 0 5 0 777 1000 321",
        "7 (a)R 1 7 7 0 -1 4194560 9 8 0 0 11 22 33 44 20 0 5 0 777 1000 321"})
    EXPECT_FALSE(parse_process_stat(text)) << text;
}

TEST(OwnMemory, IsWhatCannotBeDropped) {
  EXPECT_EQ(parse_own_memory("Rss: 9000 kB\nPss:      700 kB\nPss_Anon:   100 kB\nPss_File:  500 kB\n"
                             "Pss_Shmem:  100 kB\nSwapPss:    4 kB\n"),
            204u * 1024);
  EXPECT_EQ(parse_own_memory("Pss:      700 kB\n"), 700u * 1024);  // of an older kernel
  EXPECT_FALSE(parse_own_memory(""));
  EXPECT_FALSE(parse_own_memory("Pss_Anonymous: 5 kB\nPss: x kB\n"));
}

TEST(OwnMemory, OfAProcessIsRead) {
  const auto own = own_memory(::getpid());
  ASSERT_TRUE(own);
  EXPECT_GT(*own, 64u * 1024);
  EXPECT_FALSE(own_memory(1 << 22));
}

}  // namespace
}  // namespace isogate::test
