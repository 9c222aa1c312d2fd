// isogate shell
#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/commands/exec.h"
#include "gateway/cli/output.h"
#include "lib/hash.h"

namespace isogate::cli {
namespace {

constexpr const char* kLoginShell = R"x(exec "$(command -v bash || echo sh)" -l)x";

}  // namespace

int run_shell(const ShellOptions& options) {
  end_on_signals();
  ExecOptions exec = options.exec;
  exec.command = kLoginShell;
  exec.tty = true;
  if (options.remove && exec.agent.empty()) exec.agent = "shell-" + random_hex(4);
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
