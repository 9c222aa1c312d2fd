// An API server that goes: on a cluster of the tests' own, which has nobody else.
#include <csignal>

#include "tests/k8s/on_cluster.h"
#include "tests/support/processes.h"

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
  static void signal_api_server(int number) {
    const std::string text = test::read_whole(test::cluster_directory() + "/kube-apiserver.pid");
    ASSERT_FALSE(text.empty());
    ASSERT_EQ(::kill(static_cast<pid_t>(std::stol(text)), number), 0);
  }
  static void start_again() {
    const auto up = test::run_program(
        {ISOGATE_SOURCE_DIR "/tests/engines/kubernetes.sh", "up", test::cluster_directory()},
        {.timeout_sec = 180});
    ASSERT_EQ(up.exit_code, 0) << up.err;
  }
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
  EXPECT_TRUE(test::data_of(events, "stdout") == expected) << "not every byte once";
}

TEST_F(K8sFaults, AnApiServerThatStaysAwayCostsTheCallsInFlightAndNoSandbox) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("echo here > /tmp/mark");
  ExecStream stream(me, {{"command", "echo up; sleep 100"}}, 60);
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(stream.next()->at("event"), "stdout");
  signal_api_server(SIGKILL);
  const double lost = test::seconds_of([&] { EXPECT_EQ(stream.rest().back().at("outcome"), "unknown"); });
  EXPECT_LT(lost, 42.0);
  const double took = test::seconds_of([&] {
    EXPECT_TRUE(refused(me.exec("touch ran"), 503, "backend_unavailable"));
    EXPECT_TRUE(refused(Caller(gateway, "new").exec("true"), 503, "backend_unavailable"));
  });
  EXPECT_LT(took, 30.0);
  start_again();
  EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; })) << me.exec("true").text;
  EXPECT_EQ(me.out("cat /tmp/mark; ls"), "here\n") << "the same pod, in which nothing ran meanwhile";
  EXPECT_EQ(me.out("pgrep sleep || echo none"), "none\n");
}

TEST_F(K8sFaults, ASilentApiServerIsALossInFortySeconds) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  ExecStream stream(me, {{"command", "echo up; sleep 100"}}, 60);
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(stream.next()->at("event"), "stdout");
  signal_api_server(SIGSTOP);
  const double lost = test::seconds_of([&] { EXPECT_EQ(stream.rest().back().at("outcome"), "unknown"); });
  signal_api_server(SIGCONT);
  EXPECT_LT(lost, 42.0);
  EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; }));
}

TEST_F(K8sFaults, ASilentApiServerHoldsNobodyForEver) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  signal_api_server(SIGSTOP);
  Answer answer;
  const double took = test::seconds_of([&] { answer = Caller(gateway, "new").exec("true"); });
  signal_api_server(SIGCONT);
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_LT(took, 60.0);
  EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; }));
}

}  // namespace
}  // namespace isogate::k8s
