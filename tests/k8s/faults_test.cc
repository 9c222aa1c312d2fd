// Parts of a cluster, and gateways, that end: on a separate cluster, which nothing else uses.
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <set>
#include <thread>

#include "tests/k8s/on_cluster.h"
#include "tests/processes/accounting.h"
#include "tests/support/processes.h"
#include "tests_dirs.h"

namespace isogate::k8s {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::ExecStream;
using test::Gateway;
using testing::HasSubstr;

class K8sFaults : public OnCluster {
 protected:
  void TearDown() override {
    if (killed_) start_again();
    if (disturbed_ && !HasFailure()) wait_until_whole();
    OnCluster::TearDown();
  }
  // The other parts of the cluster look for the API server only from time to time, and know nothing new until
  // they have found it: no pod with a claim is scheduled.
  void wait_until_whole() const {
    const Gateway gateway(options());
    EXPECT_TRUE(eventually(120, [&] { return Caller(gateway, "new").exec("true").status == 200; }));
  }
  void signal_part(const std::string& part, int number) {
    killed_ = killed_ || number == SIGKILL;
    disturbed_ = true;
    const std::string text = test::read_whole(test::cluster_directory() + "/" + part + ".pid");
    ASSERT_FALSE(text.empty());
    const auto pid = static_cast<pid_t>(std::stol(text));
    ASSERT_EQ(::kill(pid, number), 0);
    if (number != SIGKILL) return;
    // Its port is free when its last thread has ended.
    const std::string threads = "/proc/" + std::to_string(pid) + "/task";
    ASSERT_TRUE(eventually(60, [&] { return !test::alive(pid) && entries_of(threads) <= 1; }));
  }
  static ptrdiff_t entries_of(const std::string& directory) {
    std::error_code none;
    return std::distance(std::filesystem::directory_iterator(directory, none), {});
  }
  void signal_api_server(int number) { signal_part("kube-apiserver", number); }
  // A known end is the program's own, with all its output.
  static void expect_unknown_or_whole(ExecStream& stream, const std::string& said) {
    const auto events = stream.rest();
    const Json& end = events.back();
    if (end.at("outcome") == "unknown") {
      EXPECT_TRUE(end.at("exit_code").is_null()) << end;
      return;
    }
    EXPECT_EQ(end.at("exit_code"), 0) << end;
    EXPECT_EQ(test::data_of(events, "stdout"), said);
  }
  void start_again() {
    const auto up = test::run_program(
        {ISOGATE_SOURCE_DIR "/tests/engines/kubernetes.sh", "up", test::cluster_directory()},
        {.timeout_sec = 600});
    ASSERT_EQ(up.exit_code, 0) << up.err;
    killed_ = false;
  }

 private:
  bool killed_ = false, disturbed_ = false;
};

TEST_F(K8sFaults, AKilledApiServerThatComesBackCostsNoCall) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  ExecStream stream(
      me,
      {{"command", "echo up; i=0; while [ $i -lt 40 ]; do sleep 0.25; i=$((i+1)); seq $i 9000; done"},
       {"timeout_sec", 100}},
      120);
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(test::data_of({*stream.next()}, "stdout"), "up\n");
  signal_api_server(SIGKILL);
  start_again();
  const auto events = stream.rest();
  EXPECT_EQ(events.back().at("outcome"), "exited") << events.back();
  EXPECT_EQ(events.back().at("exit_code"), 0);
  std::string expected;
  for (int from = 1; from <= 40; ++from)
    for (int i = from; i <= 9000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_TRUE(test::data_of(events, "stdout") == expected) << "bytes were lost or repeated";
}

TEST_F(K8sFaults, AnApiServerThatStaysAwayCostsTheCallsInFlightAndNoSandbox) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("echo mine > kept; echo here > /tmp/mark");
  const auto stream = started(me, "sleep 100");
  signal_api_server(SIGKILL);
  const double lost = test::seconds_of([&] { EXPECT_EQ(stream->rest().back().at("outcome"), "unknown"); });
  EXPECT_LT(lost, 50.0);
  const double took = test::seconds_of([&] {
    EXPECT_TRUE(refused(me.exec("touch ran"), 503, "backend_unavailable"));
    EXPECT_TRUE(refused(Caller(gateway, "new").exec("true"), 503, "backend_unavailable"));
  });
  EXPECT_LT(took, 30.0);
  start_again();
  EXPECT_TRUE(eventually(90, [&] { return me.exec("true").status == 200; })) << me.exec("true").text;
  EXPECT_EQ(me.out("cat kept; ls /tmp"), "mine\n")
      << "the end of its command was not seen: a new pod, the same files";
  EXPECT_EQ(me.out("pgrep sleep || echo none"), "none\n");
}

TEST_F(K8sFaults, ASilentApiServerIsALossInFortySeconds) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  Gateway gateway(options());
  const Caller me(gateway, "a");
  const auto stream = started(me, "sleep 100");
  signal_api_server(SIGSTOP);
  const double lost = test::seconds_of([&] { EXPECT_EQ(stream->rest().back().at("outcome"), "unknown"); });
  signal_api_server(SIGCONT);
  EXPECT_LT(lost, 50.0);
  EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; }));
}

TEST_F(K8sFaults, ASilentApiServerBlocksNobodyForEver) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  Gateway gateway(options());
  const Caller me(gateway, "a");
  const auto stream = started(me, "sleep 250; touch ran");
  signal_api_server(SIGSTOP);
  Answer answer;
  Json end;
  std::thread other([&] { answer = Caller(gateway, "new").exec("true"); });
  const double took = test::seconds_of([&] {
    end = stream->rest().back();
    other.join();
  });
  signal_api_server(SIGCONT);
  EXPECT_EQ(end.at("outcome"), "unknown") << end;
  EXPECT_TRUE(end.at("exit_code").is_null()) << end;
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_LT(took, 100.0);
  EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; }));
  EXPECT_EQ(me.out("ls"), "");
}

TEST_F(K8sFaults, AKilledPartOfTheNodeCostsNoSandbox) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("echo mine > kept");
  for (const char* part : {"kubelet", "containerd"}) {
    const auto stream = started(me, "sleep 20; echo fine");
    signal_part(part, SIGKILL);
    const double took = test::seconds_of([&] {
      const Answer meanwhile = me.exec("touch ran", {{"timeout_sec", 5}});
      EXPECT_NE(meanwhile.status, 200) << part << ": " << meanwhile.text;
    });
    EXPECT_LT(took, 50.0) << part;
    start_again();
    expect_unknown_or_whole(*stream, "fine\n");
    EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; })) << part;
    EXPECT_EQ(me.out("cat kept"), "mine\n") << "after the end of " << part;
  }
}

TEST_F(K8sFaults, AGatewayKilledInTheMiddleOfAnExecLeavesNothingRunning) {
  auto first = std::make_unique<Gateway>(options());
  const Caller me(*first, "a");
  me.run("echo here > /tmp/mark");
  const std::string uid = uid_of(pod()), mark = test::new_mark();
  const auto stream = started(me, "setsid -f sleep " + mark + "; sleep " + mark + "; touch ran");
  ASSERT_TRUE(test::there_within(10, mark, 2));
  std::vector<pid_t> processes = test::descendants_of(first->pid());
  processes.push_back(first->pid());
  for (const pid_t pid : processes) ::kill(pid, SIGSTOP);  // none notices another's end
  for (const pid_t pid : processes) ::kill(pid, SIGKILL);
  EXPECT_EQ(first->wait(20), 128 + SIGKILL);
  try {
    for (const Json& each : stream->rest()) {
      EXPECT_TRUE(each.at("event") != "exit" || each.at("outcome") == "unknown") << each;
    }
  } catch (const std::runtime_error&) {  // cut off in the middle
  }
  Gateway second(after(*first, options()));
  EXPECT_EQ(Caller(second, "a").out("cat /tmp/mark"), "here\n");
  EXPECT_EQ(uid_of(pod()), uid) << "it was not re-attached";
  EXPECT_TRUE(test::gone_within(60, mark));
  EXPECT_EQ(Caller(second, "a").out("ls"), "") << "the command kept running";
}

// By the kernel's own records.
TEST_F(K8sFaults, WhereOnlyRemoteWillDoADeadApiServerRunsNothingHere) {
  test::GatewayOptions remote = options();
  remote.yaml += "  - {name: local}\nrequire_remote: true\nprobe_interval_sec: 1\n";
  Gateway gateway(remote);
  const Caller me(gateway, "a");
  me.run("true");
  signal_api_server(SIGKILL);
  const std::vector<pid_t> start = test::descendants_of(gateway.pid());
  std::set<pid_t> ours(start.begin(), start.end());
  ours.insert(gateway.pid());
  test::Accounting accounting;
  const pid_t child = ::fork();  // the control: the records show its end
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  for (int i = 0; i < 20; ++i)
    for (const char* agent : {"a", "new"}) {
      const Answer answer = Caller(gateway, agent).exec("true");
      EXPECT_NE(answer.status, 200) << answer.text;
      EXPECT_NE(Caller(gateway, agent).write("file", "x").status, 200);
    }
  EXPECT_EQ(test::descendants_of(gateway.pid()), start) << "a process started or ended";
  std::set<pid_t> seen;
  for (const test::EndedProcess& each : accounting.stop()) {
    seen.insert(each.pid);
    EXPECT_EQ(ours.count(each.parent), 0u) << "`" << each.command << "` was run by process " << each.parent;
  }
  start_again();
  EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; })) << me.exec("true").text;
  if (!accounting.obstacle().empty()) GTEST_SKIP() << accounting.obstacle();
  EXPECT_EQ(seen.count(child), 1u) << "the accounting does not show what ended";
}

TEST_F(K8sFaults, APodThatLosesALabelIsNotDead) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("echo here > /tmp/mark");
  const Json first = pod();
  const auto stream = started(me, "sleep 3; echo fine");
  change(first, {{"metadata", {{"labels", {{kLabelInstance, nullptr}}}}}});
  const auto events = stream->rest();
  EXPECT_EQ(events.back().at("exit_code"), 0) << events.back();
  EXPECT_EQ(test::data_of(events, "stdout"), "fine\n");
  EXPECT_EQ(me.out("cat /tmp/mark"), "here\n");
  EXPECT_THAT(gateway.log(), HasSubstr("has lost a label"));
}

}  // namespace
}  // namespace isogate::k8s
