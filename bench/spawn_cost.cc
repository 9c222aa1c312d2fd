// What one exec of /bin/true costs, against posix_spawn with two pipes and a wait: interleaved in one
// process and in random order, so that every variant runs under the same conditions. Prints medians, p99 and
// ratios.
//
//   spawn_cost [rounds] [uid]
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "runner/exec/command.h"

namespace {

using isogate::Command;
using isogate::Runner;

struct Variant {
  const char* name;
  std::function<void()> run;
  std::vector<double> micros;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "spawn_cost: %s\n", why.c_str());
  std::exit(1);
}

isogate::Pipe pipe_or_die() {
  auto pipe = isogate::make_pipe();
  if (!pipe) fail(pipe.error().message);
  return std::move(*pipe);
}

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

void with_runner(Runner& runner, const isogate::Identity& identity) {
  const auto out = pipe_or_die(), err = pipe_or_die();
  Command command(isogate::Site::host());
  command.argv = {"/bin/true"};
  command.stdout_fd = out.write.get();
  command.stderr_fd = err.write.get();
  command.identity = identity;
  auto ending = runner.run(command);
  if (!ending) fail(ending.error().message);
  if (ending->exit_code != 0 || ending->term_signal != 0) fail("true failed");
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
  const isogate::Identity same{};
  const isogate::Identity other{true, static_cast<uint32_t>(argc > 2 ? std::atoi(argv[2]) : 61999),
                                static_cast<uint32_t>(argc > 2 ? std::atoi(argv[2]) : 61999)};
  isogate::RunnerOptions no_leaf;
  no_leaf.use_leaf = false;
  const auto leaf = Runner::make({}), reaper = Runner::make(no_leaf);
  std::vector<Variant> variants;
  variants.push_back({"posix_spawn, 2 pipes, wait", with_posix_spawn, {}});
  if (leaf->abilities().tree_kill == "cgroup2 leaf") {
    variants.push_back({"runner, leaf", [&] { with_runner(*leaf, same); }, {}});
    if (::geteuid() == 0)
      variants.push_back({"runner, leaf, other uid", [&] { with_runner(*leaf, other); }, {}});
  } else {
    std::printf("no leaf here: %s\n", leaf->abilities().missing.c_str());
  }
  variants.push_back({"runner, reaper", [&] { with_runner(*reaper, same); }, {}});
  if (::geteuid() == 0) {
    variants.push_back({"runner, reaper, other uid", [&] { with_runner(*reaper, other); }, {}});
  }
  std::mt19937 random(42);
  std::vector<size_t> order(variants.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
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
