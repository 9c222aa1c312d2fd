// isogate shell
#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/commands/exec.h"
#include "gateway/cli/output.h"
#include "lib/hash.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

constexpr const char* kLoginShell = R"x(exec "$(command -v bash || echo sh)" -l)x";
constexpr int kUnauthorized = 401, kForbidden = 403, kNotFound = 404;

// Ends what a shell that did not begin may have left, whose failure was reported. False: it may be there.
bool clean_up(const ExecOptions& exec) {
  auto client = find_gateway(exec.client);
  if (!client.ok()) return true;  // the shell did not find one either
  const auto answer = client->call(
      {.method = "DELETE", .target = "/sandboxes/" + percent_encode(exec.agent) + "?purge=true"});
  if (!answer.ok()) return answer.error().status != ISOGATE_LOST;
  const bool may_not = answer->status == kUnauthorized || answer->status == kForbidden;  // nor begin a shell
  return answer->ok() || may_not || answer->status == kNotFound;
}

}  // namespace

int run_shell(const ShellOptions& options) {
  ExecOptions exec = options.exec;
  exec.command = kLoginShell;
  exec.tty = true;
  if (auto usable = check_terminal(); !usable.ok()) return report(usable.error(), exec.client.json);
  const bool is_own = options.remove && exec.agent.empty();  // an agent that nobody else knows
  if (is_own) exec.agent = "shell-" + random_hex(4);
  AttachEnd end;
  if (!options.image.empty())
    end.exit_code =
        run_sandbox_create({exec.client, exec.agent, options.image, exec.backend, exec.min_isolation});
  const bool created = !options.image.empty() && end.exit_code == kDone;
  if (end.exit_code == kDone) end = run_attached(exec);
  if (!options.remove) return end.exit_code;
  if (!end.ended) {
    if (end.runs_on || (is_own ? !clean_up(exec) : created))
      advise("Its sandbox stays: `isogate sandbox rm --purge " + exec.agent + "` ends it.");
    return end.exit_code;
  }
  SandboxOptions sandbox;
  sandbox.client = exec.client;
  sandbox.agents = {exec.agent};
  sandbox.purge = true;
  const int removed = run_sandbox_remove(sandbox);
  return end.exit_code == kDone ? removed : end.exit_code;
}

}  // namespace isogate::cli
