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

TEST_F(K8sFaults, AKilledApiServerCostsTheCallsInFlightAndNoSandbox) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("echo here > /tmp/mark");
  ExecStream stream(me, {{"command", "echo up; sleep 60"}}, 60);
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(stream.next()->at("event"), "stdout");
  signal_api_server(SIGKILL);
  EXPECT_EQ(stream.rest().back().at("outcome"), "unknown");
  const double took = test::seconds_of([&] {
    EXPECT_TRUE(refused(me.exec("touch ran"), 503, "backend_unavailable"));
    EXPECT_TRUE(refused(Caller(gateway, "new").exec("true"), 503, "backend_unavailable"));
  });
  EXPECT_LT(took, 30.0);
  start_again();
  EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; })) << me.exec("true").text;
  EXPECT_EQ(me.out("cat /tmp/mark; ls"), "here\n") << "the same pod, in which nothing ran meanwhile";
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
