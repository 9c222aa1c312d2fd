// What programs leave behind, and many concurrent ones, in one pod.
#include <algorithm>
#include <thread>

#include "tests/k8s/on_cluster.h"
#include "tests/support/processes.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::Gateway;
using test::gone_within;
using test::new_mark;
using test::seconds_of;

class K8sExecs : public OnCluster {};

TEST_F(K8sExecs, SixtyFourAtATimeInOnePodHaveNoCliff) {
  constexpr int kCallers = 64;
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  const auto say = [&](int number) {
    const std::string text = "of " + std::to_string(number) + "\n";
    const Json result = me.run("echo of " + std::to_string(number));
    EXPECT_EQ(result.at("stdout"), text);
    EXPECT_EQ(result.at("exit_code"), 0);
  };
  const double one_by_one = seconds_of([&] {
    for (int i = 0; i < kCallers; ++i) say(i);
  });
  std::vector<double> took(kCallers);
  std::vector<std::thread> callers;
  const double together = seconds_of([&] {
    for (int i = 0; i < kCallers; ++i)
      callers.emplace_back([&, i] { took[static_cast<size_t>(i)] = seconds_of([&] { say(i); }); });
    for (std::thread& each : callers) each.join();
  });
  EXPECT_LT(together, 2 * one_by_one + 1) << "one by one they take " << one_by_one << " s";
  EXPECT_LT(*std::max_element(took.begin(), took.end()), one_by_one + 2) << "the slowest one";
  EXPECT_EQ(all("pods").size(), 1u);
}

TEST_F(K8sExecs, AChildThatHoldsStdoutCostsNoTime) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  double plain = 1e9, held = 1e9;
  for (int i = 0; i < 5; ++i) {
    const std::string mark = new_mark();
    plain = std::min(plain,
                     seconds_of([&] { EXPECT_EQ(me.run("echo same bytes").at("stdout"), "same bytes\n"); }));
    const std::string command = "sleep " + mark + " & setsid -f sleep " + mark + "; echo same bytes";
    held = std::min(held, seconds_of([&] { EXPECT_EQ(me.run(command).at("stdout"), "same bytes\n"); }));
    EXPECT_TRUE(gone_within(3, mark));
  }
  EXPECT_LT(held, plain + 0.1);
}

TEST_F(K8sExecs, NothingIsLeftAfterATimeout) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  const std::string mark = new_mark();
  std::vector<std::string> commands = test::stubborn_commands(mark);
  commands.push_back("f() { setsid sleep " + mark + " & f & f; }; (f) & exec sleep " + mark);
  for (const std::string& command : commands) {
    const Json result = me.run(command, {{"timeout_sec", 1}});
    EXPECT_EQ(result.at("outcome"), "timed_out") << command;
    EXPECT_TRUE(gone_within(3, mark)) << test::marked(mark).size() << " survivors of " << command;
    EXPECT_EQ(me.out("echo works"), "works\n") << "after " << command;
  }
  EXPECT_EQ(all("pods").size(), 1u);
}

}  // namespace
}  // namespace isogate::k8s
