#include "gateway/supervisor/backends/host_process.h"

#include <signal.h>
#include <sys/wait.h>

#include "gateway/base/budgets.h"
#include "lib/clock.h"

namespace isogate::supervisor {

void ChildProcess::kill_later(std::chrono::milliseconds delay, std::string why) {
  const TimePoint when = Clock::now() + delay;
  if (killed || (kill_at && *kill_at <= when)) return;
  kill_at = when;
  kill_reason = std::move(why);
}

void ChildProcess::kill_now(std::string why) {
  if (killed) return;
  killed = true;
  kill_at.reset();
  kill_reason = std::move(why);
  kill_child(child);
}

void HostProcess::kill_now(std::string why) {
  control.close();  // its further records are ignored
  ChildProcess::kill_now(std::move(why));
}

bool ended_with(int wait_status, int code) {
  return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == code;
}

std::string reason_of_end(const HostProcess& process, int wait_status) {
  const std::string why = process.given_up ? ": " + *process.given_up : "";
  if (process.killed) return "backend host was killed: it " + process.kill_reason + why;
  if (process.given_up) return "backend host was given up by the front" + why;
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGALRM)  // host_main.cc's
    return "backend host was ended by SIGALRM: its plugin did not return from destroy() within " +
           seconds_text(budget::kDestroy) + ", or set an alarm of its own";
  std::string reason = "backend host crashed: " + describe_end(wait_status);
  if (ended_with(wait_status, 0)) reason += " (did the plugin, or a process that it forked, call exit?)";
  if (process.failed) reason += "; its last message: " + *process.failed;
  return reason;
}

}  // namespace isogate::supervisor
