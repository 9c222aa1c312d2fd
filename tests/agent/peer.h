// A minimal client of the runner protocol, and the real isogate-runner at its other end.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isogate/backend.h"
#include "isogate/runner_protocol.h"
#include "lib/fd.h"
#include "tests/support/program.h"

namespace isogate::test {

struct PeerFrame {
  isogate_runner_frame head{};
  std::string payload;
};

struct ExecSpec {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;
  std::string cwd, user;
  uint32_t flags = ISOGATE_RUNNER_EXEC_STDOUT | ISOGATE_RUNNER_EXEC_STDERR;
  uint16_t rows = 0, cols = 0;
  std::vector<isogate_runner_limit> limits;
  uint32_t sampled = 0;  // of `limits`
  std::vector<int> fds;  // sent with the request; then no DATA follows
};
ExecSpec shell(const std::string& script);

struct Outcome {
  bool arrived = false;  // false: the connection ended first
  isogate_runner_result result{};
  std::string message, out, err;
  std::vector<std::pair<std::string, isogate_runner_entry>> entries;
};

struct FileSpec {
  uint32_t verb = 0;
  std::string path, path_to, user;
  uint32_t scope = 0, flags = 0, mode = 0;
  uint64_t offset = 0, limit = UINT64_MAX;
  int fd = -1;
};

class Peer {
 public:
  Peer() = default;
  Peer(Fd in, Fd out) : in_(std::move(in)), out_(std::move(out)) {}  // a socket: `in` alone

  bool send(uint16_t type, uint32_t stream, const std::string& payload = "", uint16_t flags = 0,
            const std::vector<int>& fds = {});
  bool send_bytes(const std::string& bytes, const std::vector<int>& fds = {});
  // nullopt: the connection has ended, or nothing came in that time.
  std::optional<PeerFrame> receive(double seconds = 20);
  bool ended(double seconds = 10);  // whatever comes before the end is skipped
  std::optional<isogate_runner_hello> hello(uint16_t major = ISOGATE_RUNNER_MAJOR);

  uint32_t exec(const ExecSpec& spec);
  uint32_t file(const FileSpec& spec);
  uint32_t evidence(const std::string& address, uint32_t port, const std::string& listeners = "");
  uint32_t prove();
  void data(uint32_t stream, const std::string& bytes);
  void end(uint32_t stream);
  void cancel(uint32_t stream) { send(ISOGATE_RUNNER_CANCEL, stream); }
  void signal(uint32_t stream, uint32_t number);
  void resize(uint32_t stream, uint32_t rows, uint32_t columns);
  void credit(uint32_t stream, uint32_t channel, uint32_t bytes);
  // Collects the frames of that stream; returns the credit for what it received, unless told not to.
  Outcome finish(uint32_t stream, double seconds = 20, bool give_credit = true);
  // Until that many bytes of stdout have arrived.
  std::string output(uint32_t stream, const std::string& until, double seconds = 10);
  Outcome run(const std::string& script) { return finish(exec(shell(script))); }
  Outcome run(const FileSpec& spec) { return finish(file(spec)); }
  Outcome write(FileSpec spec, const std::string& bytes);
  // DATA of stdin, never above the granted credit. False: contact was lost.
  bool upload(uint32_t stream, size_t bytes);

  uint32_t next_stream = 1;
  uint64_t stdin_credit = 0;  // returned by the runner

 private:
  [[nodiscard]] int out() const { return out_ ? out_.get() : in_.get(); }
  Fd in_, out_;
  std::string received_;
};

// How an isogate-runner is started.
struct Start {
  bool unprivileged = false;   // as another user, from a file that nobody may read; needs root
  bool first_process = false;  // pid 1 of a pid namespace
  bool hidden = false;         // both, in a /proc with hidepid, without /dev/pts, on a read-only root
  int max_processes = 0;       // of that other user
  std::string memory_group;    // the tasks file of a cgroup to be in
};
// Why it cannot be started like this; empty: it can.
std::string obstacle(const Start& start);

// A runner that dials a socket of this process; it ends with this object.
class AgentProcess {
 public:
  explicit AgentProcess(const Start& start = {});
  ~AgentProcess();
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  Peer accept(double seconds = 10);  // waits for it to dial, and sends HELLO
  Peer accept_silently(double seconds = 10);
  void close_listener() { listener_.reset(); }
  void open_listener();             // a new socket in the place of the old one
  [[nodiscard]] pid_t pid() const;  // of the runner itself, as this process sees it
  [[nodiscard]] const std::string& workspace() const { return workspace_; }
  [[nodiscard]] std::string path(const std::string& name) const { return workspace_ + "/" + name; }
  void signal(int number) const;
  bool ended(double seconds);
  [[nodiscard]] int exit_status() const { return status_; }

 private:
  TemporaryDirectory directory_;
  std::string workspace_;
  Fd listener_;
  pid_t child_ = -1;
  bool first_process_ = false;
  int status_ = -1;
};

// A runner with one client.
class OneClient : public testing::Test {
 protected:
  AgentProcess agent;
  Peer peer = agent.accept();
};

// A runner whose stdin and stdout are a socket or pipes.
class StdioAgent {
 public:
  explicit StdioAgent(bool pipes);
  ~StdioAgent();
  StdioAgent(const StdioAgent&) = delete;
  StdioAgent& operator=(const StdioAgent&) = delete;
  Peer peer;
  TemporaryDirectory workspace;
  bool ended(double seconds);

 private:
  pid_t child_ = -1;
};

std::string runner_binary();
// Sets its soft limit on open files; false: not possible here.
bool limit_files(pid_t pid, uint64_t most);
std::vector<pid_t> children_in(pid_t pid);
char state_of(pid_t pid);  // from /proc; 0: no such process

}  // namespace isogate::test
