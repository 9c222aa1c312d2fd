#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/namespace/boxes.h"

// Nothing is left behind, however an exec ended.
namespace isogate::test {
namespace {

class Leftovers : public Boxes {};

struct Count {
  size_t descriptors, children, mounts, groups;
};

// Only the gateway's own: other suites mount things on this machine, too.
size_t mounts_of(const Gateway& gateway) {
  std::ifstream file("/proc/self/mountinfo");
  size_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(gateway.state_dir()) != line.npos;
  return count;
}

Count count(const Gateway& gateway) {
  const pid_t host = host_of(gateway, "namespace");
  size_t groups = 0;
  for (const GroupBase& base : group_bases_of(host)) {
    groups += std::stoul(run_program({"sh", "-c", "find " + base.path + " -type d | wc -l"}).out);
  }
  return {open_files(host).size(), descendants_of(host).size(), mounts_of(gateway), groups};
}

size_t network_namespaces() {
  return static_cast<size_t>(std::stoul(
      run_program(
          {"sh", "-c", "ls -l /proc/[0-9]*/ns/net 2>/dev/null | sed 's/.*net:/net:/' | sort -u | wc -l"})
          .out));
}

TEST_F(Leftovers, ManyExecsLeaveNothing) {
  const auto own = another("");
  const Caller me(*own, "many");
  me.run("true");
  ASSERT_TRUE(eventually(3, [&] { return descendants_of(host_of(*own, "namespace")).size() <= 3; }));
  const Count before = count(*own);
  const size_t networks = network_namespaces();
  const int rounds = slow_tests() ? 10000 : 300;
  const std::string mark = new_mark();
  for (int i = 0; i < rounds; ++i) {
    switch (i % 6) {
      case 0:
        EXPECT_EQ(me.run("exit 3").at("exit_code"), 3);
        break;
      case 1:
        EXPECT_EQ(me.run("setsid -f sleep " + mark + "; (sleep " + mark + " &)").at("outcome"), "exited");
        break;
      case 2:
        EXPECT_EQ(me.run("setsid sleep " + mark + " & sleep " + mark, {{"timeout_sec", 0.02}}).at("outcome"),
                  "timed_out");
        break;
      case 3:
        EXPECT_EQ(me.run("kill -9 $$").at("signal"), "SIGKILL");
        break;
      case 4:
        EXPECT_EQ(me.run_argv({"/no/such"}).at("exit_code"), 127);
        break;
      default: {
        ExecStream left(me, {{"command", "sleep " + mark}});
        left.next();
      }
    }
  }
  EXPECT_TRUE(gone_within(2, mark)) << marked(mark).size() << " left";
  EXPECT_TRUE(eventually(5,
                         [&] {
                           const Count now = count(*own);
                           return now.descriptors <= before.descriptors + 3 &&
                                  now.children <= before.children + 1 && now.mounts == before.mounts &&
                                  now.groups <= before.groups + 1;
                         }))
      << "descriptors " << before.descriptors << " → " << count(*own).descriptors << ", processes "
      << before.children << " → " << count(*own).children << ", mounts " << before.mounts << " → "
      << count(*own).mounts << ", groups " << before.groups << " → " << count(*own).groups;
  EXPECT_LE(network_namespaces(), networks + 1);
}

TEST_F(Leftovers, UnusedInitsEnd) {
  const auto own = another("");
  const Caller me(*own, "idle");
  me.run("true");
  const pid_t host = host_of(*own, "namespace");
  const auto inits = [&] {
    size_t found = 0;
    for (const pid_t pid : children_of(host)) found += command_line(pid).starts_with("init") ? 1 : 0;
    return found;
  };
  EXPECT_TRUE(eventually(2, [&] { return inits() == 1; })) << "one is made in advance";
  EXPECT_TRUE(eventually(20, [&] { return inits() == 0; })) << "and ends when it is not needed";
  EXPECT_EQ(me.out("echo again"), "again\n");
}

TEST_F(Leftovers, PurgingFreesNamespacesAndUid) {
  const auto own = another("");
  const pid_t host = host_of(*own, "namespace");
  const size_t before = open_files(host).size();
  for (int i = 0; i < 20; ++i) {
    const Caller me(*own, "agent-" + std::to_string(i));
    me.run("echo x > f");
    ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + me.agent() + "?purge=true")));
  }
  EXPECT_TRUE(eventually(3, [&] { return open_files(host).size() <= before + 6; }))
      << before << " → " << open_files(host).size();
  const auto left = [&] {
    return run_program({"find", own->state_dir() + "/uids", own->state_dir() + "/sandboxes", "-mindepth", "1",
                        "!", "-name", ".purged", "!", "-path", "*/uids/key"})
        .out;
  };
  const std::string trash = own->state_dir() + "/sandboxes/.purged/";
  std::istringstream lines(left());
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(line.starts_with(trash)) << line;
  // What a purge could not remove within its second is left to the sweeper.
  EXPECT_TRUE(eventually(20, [&] { return left().empty(); })) << left();
}

// However many files there are and whatever uses the CPUs, the agent's next program runs where it should.
TEST_F(Leftovers, APurgeOfManyFilesKeepsTheNextSandboxIsolated) {
  const auto own = another("");
  const Caller me(*own, "many-files"), busy(*own, "busy");
  ExecStream spinning(
      busy, {{"command", "for i in 1 2 3 4; do (while :; do :; done) & done; wait"}, {"timeout_sec", 120}});
  const std::string host = run_program({"readlink", "/proc/self/ns/net"}).out;
  for (int round = 0; round < 3; ++round) {
    const Json many = me.run("for i in {1..20}; do mkdir d$i && (cd d$i && touch f{1..1000}); done",
                             {{"timeout_sec", 110}});
    ASSERT_EQ(many.at("exit_code"), 0) << many;
    EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/" + me.agent() + "?purge=true")));
    const auto ran = me.run("readlink /proc/self/ns/net; ls", {{"min_isolation", "namespace"}});
    const std::string out = ran.at("stdout");
    EXPECT_EQ(ran.at("isolation"), "namespace");
    EXPECT_TRUE(out.starts_with("net:[")) << out;
    EXPECT_NE(out, host);
    EXPECT_EQ(out.find('\n'), out.size() - 1) << "an empty workspace: " << out;
  }
  EXPECT_TRUE(
      eventually(60, [&] { return std::filesystem::is_empty(own->state_dir() + "/sandboxes/.purged"); }));
}

// Only the host is killed: its inits end with it.
TEST_F(Leftovers, NothingOutlivesAKilledHost) {
  const auto own = another("");
  const Caller me(*own, "orphan");
  const std::string mark = new_mark();
  ExecStream running(me, {{"command", "setsid -f sleep " + mark + "; sleep " + mark}, {"timeout_sec", 60}});
  ASSERT_TRUE(there_within(5, mark, 2));
  ::kill(host_of(*own, "namespace"), SIGKILL);
  EXPECT_TRUE(gone_within(0.5, mark)) << marked(mark).size() << " survivors";
  EXPECT_NE(running.rest().back().at("event"), "stdout");
  EXPECT_TRUE(eventually(20, [&] { return me.exec("true").status == 200; })) << "it is not restarted";
}

}  // namespace
}  // namespace isogate::test
