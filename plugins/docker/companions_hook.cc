// post_start, and the end of companions.
#include <nlohmann/json.hpp>

#include "plugins/docker/companions.h"
#include "plugins/docker/engine_pool.h"
#include "plugins/docker/random_hex.h"

namespace isogate::docker {
using std::chrono::milliseconds;

void Companions::run_hook(const Companion& companion, const std::string& started_at) {
  CompanionRecord row = recorded(companion.name);
  if (row.hooked == started_at) return;
  // However long that takes: a sandbox that is made ahead is measured when somebody takes it.
  const isogate_call waiting{sizeof(isogate_call), stop_.get(), INT64_MAX, {}};
  std::shared_ptr<sdk::RunnerLink> link;
  while (!(link = primary_(sdk::Call(waiting))))
    if (stopping(milliseconds(100))) throw sdk::Error(ISOGATE_CANCELLED, "cancelled");
  try {
    const Bounded bounded(std::chrono::seconds(companion.post_start->timeout_sec), stop_.get());
    run_hook_in(*link, companion, bounded.call());
  } catch (const sdk::Error& error) {
    if (stopping(milliseconds(0))) throw;
    services_.warn("post_start of " + named(companion) + " did not run: " + error.what());
  }
  row.hooked = started_at;
  record(row);
}

void Companions::run_hook_in(sdk::RunnerLink& link, const Companion& companion, const sdk::Call& call) {
  const std::string id = random_hex(16);
  std::vector<isogate_str> argv;
  for (const std::string& each : companion.post_start->command) argv.push_back(sdk::str(each));
  std::vector<isogate_pair> env;
  for (const auto& [key, value] : services_.config.env) env.push_back({sdk::str(key), sdk::str(value)});
  isogate_exec_request request{};
  request.struct_size = sizeof request;
  request.exec_id = sdk::str(id);
  request.argv = argv.data();
  request.argc = argv.size();
  request.env = env.data();
  request.envc = env.size();
  request.stdin_fd = request.stdout_fd = request.stderr_fd = request.control_fd = -1;
  isogate_exec_result result{};
  result.struct_size = sizeof result;
  link.exec(call, request, result);
  const std::string what = "post_start of " + named(companion);
  if (stopping(milliseconds(0))) throw sdk::Error(ISOGATE_CANCELLED, "cancelled");
  if ((result.flags & ISOGATE_RESULT_KILLED) != 0)
    services_.warn(what + " was killed after " + std::to_string(companion.post_start->timeout_sec) + " s");
  else if ((result.flags & ISOGATE_RESULT_NOT_STARTED) != 0)
    services_.warn(what + " could not be started: is there a program " + companion.post_start->command[0] +
                   " in the sandbox's image?");
  else if (result.term_signal != 0)
    services_.warn(what + " was ended by signal " + std::to_string(result.term_signal));
  else if (result.exit_code != 0)
    services_.warn(what + " ended with exit code " + std::to_string(result.exit_code) +
                   "; its output is not kept");
  else
    services_.info(what + " has run");
}

bool is_companion(const Json& seen, const Owner& owner, const std::string& name) {
  const std::string its = text_at(seen, "Name");
  return carries(member(member(seen, "Config"), "Labels"), owner) && (its == name || its == "/" + name);
}

namespace {

constexpr milliseconds kMadeLate{3'000};

// Null: there is none. One that was about to be made may still come.
Json look_for(Services& services, const CompanionRecord& companion, const sdk::Call& call) {
  const Budget late(call, kMadeLate);
  for (;;) {
    try {
      return services.engine.inspect(companion.id.empty() ? companion.name : companion.id, call);
    } catch (const EngineError& error) {
      if (error.status() != ISOGATE_NOT_FOUND) throw;
      if (!companion.id.empty() || late.over()) return {};
    }
    if (late.wait(-1, 0, milliseconds(100)) == Budget::Outcome::kCancelled) call.check();
  }
}

}  // namespace

void remove_companions(Services& services, const Owner& owner, int directory, const sdk::Call& call) {
  for (const CompanionRecord& each : read_companions(directory)) {
    if (each.name.empty()) continue;
    const Json seen = look_for(services, each, call);
    if (seen.is_null() || !is_companion(seen, owner, each.name)) continue;
    try {
      services.engine.remove(seen.at("Id"), true, true, call);
    } catch (const EngineError& error) {
      if (error.status() != ISOGATE_NOT_FOUND) throw;
    }
  }
  write_companions(directory, {});
}

}  // namespace isogate::docker
