// What one exec of /bin/true costs through a RunnerLink and an isogate-runner at the other end of a
// socketpair, with descriptors passed along and with all bytes in frames, against posix_spawn with two pipes
// and a wait: interleaved in one process and in random order. Prints medians, p99 and ratios.
//
//   runner_link [rounds]        with the isogate-runner in its directory
#include "isogate/runner_link.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>

#include "lib/fd.h"

namespace {

namespace sdk = isogate::sdk;

struct Variant {
  const char* name;
  std::function<void()> run;
  std::vector<double> micros;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "runner_link: %s\n", why.c_str());
  std::exit(1);
}

isogate::Pipe pipe_or_die() {
  auto pipe = isogate::make_pipe();
  if (!pipe) fail(pipe.error().message);
  return std::move(*pipe);
}

class AgentProcess {
 public:
  explicit AgentProcess(bool descriptors) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("no socketpair");
    const isogate::Fd theirs(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    std::string binary = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "isogate-runner";
    char mode[] = "stdio", option[] = "--workspace", workspace[] = "/tmp";
    char* const argv[] = {binary.data(), mode, option, workspace, nullptr};
    if (::posix_spawn(&child_, binary.c_str(), &actions, nullptr, argv, environ) != 0)
      fail("no isogate-runner");
    posix_spawn_file_actions_destroy(&actions);
    link_ =
        sdk::RunnerLink::connect(sdk::socket_stream(ends[0], descriptors), std::chrono::seconds(10), call_);
  }
  ~AgentProcess() {
    link_.reset();
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  void run() {
    const auto out = pipe_or_die(), err = pipe_or_die();
    const isogate_str argv[] = {sdk::str("/bin/true")};
    isogate_exec_request request{};
    request.argv = argv;
    request.argc = 1;
    request.stdin_fd = request.control_fd = -1;
    request.stdout_fd = out.write.get();
    request.stderr_fd = err.write.get();
    isogate_exec_result result{};
    link_->exec(call_, request, result);
    if (result.exit_code != 0 || result.term_signal != 0) fail("true failed");
  }

 private:
  pid_t child_ = -1;
  const isogate::Fd cancel_{::eventfd(0, EFD_CLOEXEC)};
  const isogate_call abi_{sizeof abi_, cancel_.get(), INT64_MAX, {nullptr, 0}};
  const sdk::Call call_{abi_};
  std::shared_ptr<sdk::RunnerLink> link_;
};

void with_posix_spawn() {
  const auto out = pipe_or_die(), err = pipe_or_die();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  char program[] = "/bin/true";
  char* const argv[] = {program, nullptr};
  char* const envp[] = {nullptr};
  pid_t pid = 0;
  int status = -1;
  if (::posix_spawn(&pid, program, &actions, nullptr, argv, envp) != 0) fail("posix_spawn failed");
  posix_spawn_file_actions_destroy(&actions);
  if (::waitpid(pid, &status, 0) != pid || status != 0) fail("true failed");
}

double at(std::vector<double>& values, double quantile) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(quantile * static_cast<double>(values.size() - 1))];
}

void print(std::vector<Variant>& variants) {
  const double p50 = at(variants[0].micros, 0.5), p99 = at(variants[0].micros, 0.99);
  std::printf("%-28s %10s %7s %10s %7s\n", "/bin/true", "p50 us", "ratio", "p99 us", "ratio");
  for (auto& variant : variants) {
    const double middle = at(variant.micros, 0.5), tail = at(variant.micros, 0.99);
    std::printf("%-28s %10.1f %7.3f %10.1f %7.3f\n", variant.name, middle, middle / p50, tail, tail / p99);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  AgentProcess passing(true), framing(false);
  std::vector<Variant> variants = {{"posix_spawn, 2 pipes, wait", with_posix_spawn, {}},
                                   {"runner link, descriptors", [&] { passing.run(); }, {}},
                                   {"runner link, frames", [&] { framing.run(); }, {}}};
  std::mt19937 random(42);
  std::vector<size_t> order = {0, 1, 2};
  for (int round = 0; round < rounds + 50; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      const auto start = std::chrono::steady_clock::now();
      variants[i].run();
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      if (round >= 50) variants[i].micros.push_back(took.count());  // the first 50 warm up
    }
  }
  print(variants);
}
