// A host that will be killed: runs one script with a Runner, as `runner_host leaf|reaper <mark> <script>`.
// Like every host it has a thread in addition to those that run programs.
#include <cstdio>
#include <cstring>
#include <thread>

#include "runner/exec/command.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  isogate::RunnerOptions options;
  options.use_leaf = std::strcmp(argv[1], "leaf") == 0;
  options.group = "isogate-death";
  const auto runner = isogate::Runner::make(options);
  isogate::Command command(isogate::Site::host());
  command.argv = {"sh", "-c", argv[3]};
  command.env = {{"PATH", "/usr/bin:/bin"}, {"ISOGATE_TEST_MARK", argv[2]}};
  if ((runner->abilities().capabilities & ISOGATE_CAP_LIMIT_PIDS) != 0)
    command.limits.set(ISOGATE_LIMIT_PIDS, 100);
  isogate::Result<isogate::Ending> ending = isogate::Error{};
  std::thread([&] { ending = runner->run(command); }).join();
  if (!ending) std::fprintf(stderr, "%s\n", ending.error().message.c_str());
  return ending && ending->exit_code == 0 ? 0 : 1;
}
