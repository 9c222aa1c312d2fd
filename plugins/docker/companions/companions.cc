#include "plugins/docker/companions/companions.h"

#include <nlohmann/json.hpp>

#include "lib/hash.h"
#include "lib/thread.h"
#include "plugins/common/bounded_call.h"
#include "plugins/common/or_throw.h"
#include "plugins/common/run_own.h"
#include "plugins/docker/await_late.h"
#include "plugins/docker/container/container_state.h"

namespace isogate::docker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kStartsAgain = 3;
constexpr seconds kBefore[kStartsAgain] = {seconds(1), seconds(5), seconds(25)};
constexpr milliseconds kLook{500}, kLookLater{5'000};
constexpr seconds kStartPatience{30};  // then it is looked at less often
constexpr int kNameInUse = 12;         // so often that is no failed start

// The earlier one is still being made, and has the name.
struct NameInUse : NetError {
  explicit NameInUse(const NetError& error) : NetError(error) {}
};

// podman: 500
bool is_in_use(const NetError& error) {
  return error.http_status() == 409 ||
         (error.http_status() == 500 && std::string_view(error.what()).find("in use") != std::string::npos);
}

// What is recorded; the Engine may still be creating it.
ContainerState find_recorded(Engine& engine, const Owner& owner, const CompanionRecord& record,
                             const sdk::Call& call) {
  ContainerState state;
  await_late(record.id.empty(), Budget(call, kMadeLate), [&] {
    state = look_at(engine, owner, record.id.empty() ? record.name : record.id, call);
    return state.exists;
  });
  return state;
}

bool is_up(const ContainerState& state) { return state.running || state.paused; }

}  // namespace

Companions::Companions(Services& services, Parts parts, int directory, Primary primary)
    : services_(services),
      parts_(std::move(parts)),
      directory_(directory),
      primary_(std::move(primary)),
      stop_(or_throw(make_event())),
      sandbox_id_(parts_.sandbox_id),
      records_(read_companions(directory)) {
  try {
    for (const Companion& each : services_.config.companions)
      threads_.push_back(start_thread([this, &each] { tend(each); }));
  } catch (const std::system_error& error) {
    stop();
    throw sdk::Error(ISOGATE_RESOURCE_EXHAUSTED, std::string("cannot start a thread: ") + error.what());
  }
}

Companions::~Companions() { stop(); }

void Companions::stop() {
  signal_event(stop_.get());
  for (std::thread& each : threads_) each.join();
  threads_.clear();
}

void Companions::belong_to(const std::string& sandbox_id) {
  const std::lock_guard lock(mutex_);
  sandbox_id_ = sandbox_id;
}

std::string Companions::named(const Companion& companion) {
  const std::lock_guard lock(mutex_);
  return "the companion `" + companion.name + "` of " + sandbox_id_;
}

CompanionRecord Companions::recorded(const std::string& companion) {
  const std::lock_guard lock(mutex_);
  for (const CompanionRecord& each : records_)
    if (each.companion == companion) return each;
  return {companion, "", "", ""};
}

void Companions::record(const CompanionRecord& row) {
  const std::lock_guard lock(mutex_);
  std::erase_if(records_, [&](const CompanionRecord& each) { return each.companion == row.companion; });
  records_.push_back(row);
  write_companions(directory_, records_);
}

void Companions::tend(const Companion& companion) noexcept {
  try {
    keep_up(companion);
  } catch (const std::exception& error) {
    services_.warn(named(companion) + " is left alone: " + error.what());
  }
}

// Lost contact with the Engine is not the end of the companion.
void Companions::keep_up(const Companion& companion) {
  std::string logged;  // an Engine that is away for long is reported once
  int in_use = 0;
  for (int again = 0;;) {
    bool known = true;
    std::string why;
    try {
      once(companion);
    } catch (const NameInUse& error) {
      known = ++in_use > kNameInUse;
      why = error.what();
    } catch (const NetError& error) {
      known = error.http_status() != 0;
      why = error.what();
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (call_.cancelled()) return;
    if (!why.empty() && (known || why != logged))
      services_.warn(named(companion) + (known ? " is not up: " : " is looked at again in 5 s: ") + why);
    logged = why;
    if (known && again == kStartsAgain) break;
    if (is_signalled(stop_.get(), known ? kBefore[again++] : kLookLater)) return;
  }
  services_.warn(named(companion) + " was started " + std::to_string(1 + kStartsAgain) +
                 " times: it stays down until the sandbox's container is recreated");
}

// From its start to its end.
void Companions::once(const Companion& companion) {
  const std::string id = bring_up(companion);
  if (companion.healthcheck && await_health(companion, id)) {
    const ContainerState state = look_at(services_.engine, parts_.owner, id, call_);
    services_.info(named(companion) + " is healthy");
    if (companion.post_start) run_hook(companion, state.started_at);
  }
  const Budget budget = Budget::endless(stop_.get());
  const int64_t code = services_.engine.wait(id, budget);
  const ContainerState state = look_at(services_.engine, parts_.owner, id, call_);
  services_.warn(
      with_memory(named(companion) + " ended with exit code " + std::to_string(code), state.out_of_memory));
}

// Its id.
std::string Companions::bring_up(const Companion& companion) {
  const CompanionRecord before = recorded(companion.name);
  std::string id = before.id;
  bool may_come = false;
  if (!before.name.empty()) {
    const ContainerState state = find_recorded(services_.engine, parts_.owner, before, call_);
    const bool ours = state.ours && state.name == before.name;
    if (state.exists && !ours)
      services_.warn("what is recorded as " + named(companion) +
                     " is not what this gateway made: it is left alone");
    may_come = id.empty() && !state.exists;
    if (!ours) id.clear();
    if (!id.empty() && is_up(state)) {
      check_limits(companion, id);
      return id;
    }
    if (id.empty() && ours) services_.engine.remove(before.name, call_);
  }
  call_.check();
  if (id.empty()) id = make(companion, may_come);
  check_limits(companion, id);
  services_.engine.start(id, call_);
  return id;
}

std::string Companions::make(const Companion& companion, bool may_come) {
  CompanionRecord row = recorded(companion.name);
  if (!may_come)
    row = {companion.name, parts_.owner.sandbox_id + "." + companion.name + "." + random_hex(8), "", ""};
  record(row);
  try {
    row.id =
        services_.engine.create_container(row.name, container_of(services_.config, parts_, companion), call_);
  } catch (const NetError& error) {
    if (!may_come && !error.maybe_done()) record({companion.name, "", "", ""});
    if (may_come && is_in_use(error)) throw NameInUse(error);
    throw;
  }
  record(row);
  return row.id;
}

// It is removed if they are not in force.
void Companions::check_limits(const Companion& companion, const std::string& id) {
  if (services_.limits_best_effort()) return;
  const Json seen = services_.engine.inspect(id, call_);
  const std::string why = difference_of(limits_from(companion), engine_limits(seen), services_.has_no_swap());
  if (why.empty()) return;
  services_.engine.remove(id, call_);
  record({companion.name, "", "", ""});
  throw sdk::Error(ISOGATE_UNAVAILABLE, "the Engine does not put its limits in force: " + why);
}

// False: it ended before. An unhealthy one may still become healthy.
bool Companions::await_health(const Companion& companion, const std::string& id) {
  const auto begin = Budget::Clock::now();
  bool logged = false;
  for (;;) {
    const ContainerState state = look_at(services_.engine, parts_.owner, id, call_);
    if (!is_up(state)) return false;
    if (state.health == "healthy") return true;
    if (state.health == "unhealthy" && !logged) {
      logged = true;
      services_.warn(named(companion) + " is unhealthy: its healthcheck failed " +
                     std::to_string(companion.healthcheck->retries) + " times in a row");
    }
    sleep_for(Budget::Clock::now() - begin < kStartPatience ? kLook : kLookLater, call_);
  }
}

void Companions::run_hook(const Companion& companion, const std::string& started_at) {
  CompanionRecord row = recorded(companion.name);
  if (row.hooked == started_at) return;
  // However long that takes: a sandbox created in advance is measured when it is taken.
  std::shared_ptr<sdk::RunnerLink> link;
  while (!(link = primary_(call_))) sleep_for(milliseconds(100), call_);
  try {
    const BoundedCall bounded(std::chrono::seconds(companion.post_start->timeout_sec), stop_.get());
    run_hook_in(*link, companion, bounded.call());
  } catch (const sdk::Error& error) {
    if (call_.cancelled()) throw;
    services_.warn("post_start of " + named(companion) + " did not run: " + error.what());
  }
  row.hooked = started_at;
  record(row);
}

void Companions::run_hook_in(sdk::RunnerLink& link, const Companion& companion, const sdk::Call& call) {
  const isogate_exec_result result =
      exec_own(link, companion.post_start->command, services_.config.env, -1, call);
  const std::string what = "post_start of " + named(companion);
  call_.check();
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

void remove_companions(Services& services, const Owner& owner, int directory, const sdk::Call& call) {
  for (const CompanionRecord& each : read_companions(directory)) {
    if (each.name.empty()) continue;
    const ContainerState state = find_recorded(services.engine, owner, each, call);
    if (!state.ours || state.name != each.name) continue;
    net::unless_gone([&] { services.engine.remove(state.id, call); });
  }
  write_companions(directory, {});
}

}  // namespace isogate::docker
