// What the real isogate-runner measures, and the limits it lives in.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>

#include "runner/agent/evidence.h"
#include "runner/cgroup/cgroup_detect.h"
#include "tests/agent/peer.h"
#include "tests/support/processes.h"

namespace isogate::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kMemory = 512 << 20;  // the runner itself is large
#else
constexpr uint64_t kMemory = 64 << 20;
#endif

// A memory cgroup below this process's own; removed at the end.
class MemoryGroup {
 public:
  MemoryGroup() {
    for (const CgroupHierarchy& hierarchy : detect_cgroups()) {
      const auto& names = hierarchy.controllers;
      if (hierarchy.version != 1 || std::find(names.begin(), names.end(), "memory") == names.end()) continue;
      const std::string path = hierarchy.directory + "/agent-test." + std::to_string(::getpid());
      if (::mkdir(path.c_str(), 0755) != 0) return;
      path_ = path;
      std::ofstream(path_ + "/memory.limit_in_bytes") << kMemory;
    }
  }
  ~MemoryGroup() {
    for (int i = 0; !path_.empty() && i < 100 && ::rmdir(path_.c_str()) != 0; ++i) ::usleep(10000);
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  [[nodiscard]] std::string tasks() const { return path_.empty() ? "" : path_ + "/tasks"; }

 private:
  std::string path_;
};

Fd listen_locally(uint16_t& port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size);
  ::listen(socket.get(), 4);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
  return socket;
}

// 0: it is not among them.
uint64_t limit_in(const std::string& limits, uint32_t id) {
  isogate_runner_limit limit{};
  for (size_t at = 0; at + sizeof limit <= limits.size(); at += sizeof limit) {
    std::memcpy(&limit, limits.data() + at, sizeof limit);
    if (limit.id == id) return limit.value;
  }
  return 0;
}

TEST(AgentEvidence, IsWhatAProgramFinds) {
  if (const std::string why = obstacle({.unprivileged = true}); !why.empty()) GTEST_SKIP() << why;
  AgentProcess agent({.unprivileged = true});
  Peer peer = agent.accept();
  const Outcome measured = peer.finish(peer.evidence("", 0));
  ASSERT_EQ(measured.result.status, ISOGATE_OK) << measured.message;
  EXPECT_NE(measured.result.evidence_flags & ISOGATE_EVIDENCE_MEASURED, 0u);
  EXPECT_NE(measured.result.evidence_flags & ISOGATE_EVIDENCE_NETWORK, 0u);
  EXPECT_EQ(measured.result.uid, 61000u);
  EXPECT_EQ(measured.result.no_new_privs, 1u);
  EXPECT_EQ(measured.result.cap_effective, 0u);
  EXPECT_GT(measured.result.visible_processes, 0u);
  const Outcome found =
      peer.run("for n in mnt pid net; do readlink /proc/self/ns/$n; done; grep -c . /proc/self/status");
  EXPECT_NE(found.out.find("pid:[" + std::to_string(measured.result.ns_pid) + "]"), std::string::npos);
  EXPECT_NE(found.out.find("net:[" + std::to_string(measured.result.ns_net) + "]"), std::string::npos);
}

TEST(AgentEvidence, ReportsWhetherTheGatewayCanBeReached) {
  AgentProcess agent;
  Peer peer = agent.accept();
  uint16_t port = 0;
  Fd listener = listen_locally(port);
  const Outcome reached = peer.finish(peer.evidence("127.0.0.1", port));
  EXPECT_NE(reached.result.evidence_flags & ISOGATE_EVIDENCE_REACHED_GATEWAY, 0u);
  listener.reset();
  const Outcome closed = peer.finish(peer.evidence("127.0.0.1", port));
  EXPECT_EQ(closed.result.evidence_flags & ISOGATE_EVIDENCE_REACHED_GATEWAY, 0u);
  EXPECT_EQ(peer.finish(peer.evidence("no address", port)).result.status, ISOGATE_OK);
}

TEST(AgentEvidence, TriesEveryListener) {
  AgentProcess agent;
  Peer peer = agent.accept();
  uint16_t port = 0, other = 0;
  const Fd listener = listen_locally(port);
  Fd closed = listen_locally(other);
  closed.reset();
  const std::string first = "127.0.0.1:" + std::to_string(other), second = "0.0.0.0:" + std::to_string(port);
  const auto flags = [&](const std::string& listeners) {
    return peer.finish(peer.evidence("127.0.0.1", other, listeners)).result.evidence_flags;
  };
  EXPECT_EQ(flags(first) & (ISOGATE_EVIDENCE_REACHED_GATEWAY | ISOGATE_EVIDENCE_NETWORK),
            ISOGATE_EVIDENCE_NETWORK);
  EXPECT_NE(flags(first + " " + second) & ISOGATE_EVIDENCE_REACHED_GATEWAY, 0u);
  EXPECT_NE(flags("[::1]:" + std::to_string(port) + " " + first) & ISOGATE_EVIDENCE_REACHED_GATEWAY, 0u);
  EXPECT_EQ(flags(first + " localhost:80") & ISOGATE_EVIDENCE_NETWORK, 0u)
      << "what cannot be tried was not tried";
}

// It has descriptors for everything but the sockets.
TEST(AgentEvidence, ASocketThatCannotBeMadeProvesNothing) {
  AgentProcess agent;
  Peer peer = agent.accept();
  ASSERT_NE(peer.finish(peer.evidence("", 0)).result.evidence_flags & ISOGATE_EVIDENCE_NETWORK, 0u);
  std::string many;
  for (int i = 0; i < 400; ++i) many += "127.0.0.1:" + std::to_string(20000 + i) + " ";
  ASSERT_TRUE(limit_files(agent.pid(), 200));
  const Outcome measured = peer.finish(peer.evidence("", 0, many));
  ASSERT_EQ(measured.result.status, ISOGATE_OK) << measured.message;
  EXPECT_EQ(measured.result.evidence_flags & ISOGATE_EVIDENCE_NETWORK, 0u);
}

TEST(AgentEvidence, ReadsTheLimitAndReportsWhatDiedOfIt) {
  const MemoryGroup group;
  if (group.tasks().empty()) GTEST_SKIP() << "no memory cgroup (v1) can be created here";
  AgentProcess agent({.memory_group = group.tasks()});
  Peer peer = agent.accept();
  EXPECT_EQ(limit_in(peer.finish(peer.evidence("", 0)).message, ISOGATE_LIMIT_MEMORY_BYTES), kMemory);
  const std::string too_much = "dd if=/dev/zero of=/dev/null count=1 bs=" + std::to_string(4 * kMemory);
  const Outcome died = peer.finish(peer.exec(shell("exec " + too_much)));
  ASSERT_TRUE(died.arrived);
  EXPECT_EQ(died.result.term_signal, SIGKILL);
  EXPECT_NE(died.result.exec_flags & ISOGATE_RESULT_OOM_KILLED, 0u);
  const Outcome below = peer.finish(peer.exec(shell(too_much + "; exit $?")));
  EXPECT_EQ(below.result.exit_code, 137);
  EXPECT_NE(below.result.exec_flags & ISOGATE_RESULT_OOM_KILLED, 0u);
  EXPECT_EQ(peer.run("kill -9 $$").result.exec_flags, 0u);
}

TEST(AgentLimits, AFullPidsLimitRefusesCallsAndNothingElse) {
  if (const std::string why = obstacle({.unprivileged = true}); !why.empty()) GTEST_SKIP() << why;
  AgentProcess agent({.unprivileged = true, .max_processes = 25});
  Peer peer = agent.accept();
  constexpr int kMany = 40;
  for (int i = 0; i < kMany; ++i) peer.exec(shell("exec sleep 1"));
  int refused = 0, done = 0;
  for (int i = 0; i < kMany; ++i) {
    const auto frame = peer.receive();
    ASSERT_TRUE(frame.has_value());
    isogate_runner_result result{};
    std::memcpy(&result, frame->payload.data(), sizeof result);
    if (result.status == ISOGATE_OK) ++done;
    if (result.status != ISOGATE_RESOURCE_EXHAUSTED) continue;
    ++refused;
    EXPECT_NE(frame->payload.find("pids"), std::string::npos) << frame->payload.substr(sizeof result);
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(done, 0);
  EXPECT_EQ(refused + done, kMany);
  EXPECT_EQ(peer.run("echo fine").out, "fine\n");
}

}  // namespace
}  // namespace isogate::test
