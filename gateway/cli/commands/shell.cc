// isogate shell
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/commands/exec.h"
#include "gateway/cli/output.h"

namespace isogate::cli {
namespace {

constexpr const char* kLoginShell = R"x(exec "$(command -v bash || echo sh)" -l)x";

Result<std::string> new_agent() {
  std::array<unsigned char, 4> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return os_error("cannot get random bytes", errno);
  std::array<char, 9> digits{};
  std::snprintf(digits.data(), digits.size(), "%02x%02x%02x%02x", random[0], random[1], random[2], random[3]);
  return "shell-" + std::string(digits.data());
}

}  // namespace

int run_shell(const ShellOptions& options) {
  end_on_signals();
  ExecOptions exec = options.exec;
  exec.command = kLoginShell;
  exec.tty = true;
  if (options.remove && exec.agent.empty()) {
    auto agent = new_agent();
    if (!agent.ok()) return report(agent.error(), false);
    exec.agent = *agent;
  }
  if (!options.image.empty()) {
    const int created =
        run_sandbox_create({exec.client, exec.agent, options.image, exec.backend, exec.min_isolation});
    if (created != kDone) return created;
  }
  const AttachEnd end = run_attached(exec);
  if (options.remove && end.runs_on)
    advise("Its sandbox stays: `isogate sandbox rm --purge " + exec.agent + "` ends it.");
  if (!options.remove || !end.ended) return end.exit_code;
  SandboxOptions sandbox;
  sandbox.client = exec.client;
  sandbox.agents = {exec.agent};
  sandbox.purge = true;
  const int removed = run_sandbox_remove(sandbox);
  return end.exit_code == kDone ? removed : end.exit_code;
}

}  // namespace isogate::cli
