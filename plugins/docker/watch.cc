#include "plugins/docker/watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "lib/thread.h"
#include "plugins/common/or_throw.h"
#include "plugins/docker/container/profile.h"
#include "plugins/docker/services.h"

namespace isogate::docker {
namespace {

constexpr std::chrono::milliseconds kFirstRetry{100}, kLongestRetry{10'000};

std::vector<LabelFilter> ours(const Services& services) {
  return {{kLabelInstance, std::string(sdk::view(services.host.abi().instance))},
          {kLabelBackend, std::string(sdk::view(services.host.abi().backend_name))}};
}

Json filters_of(const std::vector<LabelFilter>& labels, bool podman) {
  Json wanted = Json::array();
  for (const LabelFilter& label : labels) wanted.push_back(label.name + "=" + label.value);
  if (podman)
    return {{"type", {"container"}}, {"label", std::move(wanted)}};  // which has other names for some
  // Without labels: what happens to a network does not have those of its containers.
  return {{"type", {"container", "network"}},
          {"event", {"die", "oom", "destroy", "update", "connect", "disconnect"}}};
}

std::string ending(const std::string& exit_code, bool out_of_memory) {
  const std::string code = exit_code.empty() ? "" : " with exit code " + one_line(exit_code, 20);
  return with_memory("its container ended" + code, out_of_memory);
}

}  // namespace

std::string with_memory(const std::string& how, bool out_of_memory) {
  constexpr const char* kSaw = "; the Engine saw it out of memory at some time";
  return !out_of_memory || how.find(kSaw) != std::string::npos ? how : how + kSaw;
}

Watch::Watch(Services& services) : services_(services), end_(or_throw(make_event())) {}

void Watch::stop() {
  signal_event(end_.get());
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

void Watch::add(const std::string& id, const std::string& name, const std::string& shape,
                const std::shared_ptr<sdk::RunnerLink>& link) {
  const std::lock_guard lock(mutex_);
  watched_[id] = {name, shape, link};
  if (thread_.joinable()) return;
  thread_ = start_thread([this] { run(); });
}

void Watch::forget(const std::string& id) {
  const std::lock_guard lock(mutex_);
  watched_.erase(id);
}

void Watch::run() {
  for (std::chrono::milliseconds wait = kFirstRetry; !is_signalled(end_.get());) {
    try {
      follow();
    } catch (const std::exception& error) {
      if (is_signalled(end_.get())) return;
      if (followed_) {
        services_.warn(std::string(error.what()) + "; tried again until it can be followed");
        wait = kFirstRetry;
      }
      followed_ = false;
    }
    if (is_signalled(end_.get(), wait)) return;
    wait = std::min(2 * wait, kLongestRetry);
  }
}

// Until the Engine ends it. Containers that ended or were changed while nothing listened are found first.
void Watch::follow() {
  const Budget endless = Budget::endless(end_.get());
  const bool podman = services_.kind(Budget(Budget::kUsual, end_.get())).podman;
  const Json filters = filters_of(ours(services_), podman);
  // podman responds only at the first event, and sends all since then.
  const std::string since = podman ? std::to_string(::time(nullptr)) : "";
  if (podman) take_stock();
  const auto events = services_.engine.events(filters, since, endless);
  if (!podman) take_stock();
  if (!followed_) services_.info("the Engine's events are followed again");
  followed_ = true;
  for (;;) {
    const Json event = events->next(endless);
    const Json& actor = member(event, "Actor");
    const Json& attributes = member(actor, "Attributes");
    std::string code = text_at(attributes, "exitCode");
    if (code.empty()) code = text_at(attributes, "containerExitCode");
    const bool of_network = text_at(event, "Type") == "network";
    on_event(of_network ? text_at(attributes, "container") : text_at(actor, "ID"), text_at(event, "Action"),
             code);
  }
}

void Watch::on_event(const std::string& id, const std::string& what, const std::string& exit_code) {
  bool out_of_memory = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watched_.find(id);
    if (found == watched_.end()) return;
    if (what == "oom") found->second.out_of_memory = true;
    out_of_memory = found->second.out_of_memory;
  }
  if (what == "update" || what == "connect" || what == "disconnect") return look_whether_changed(id);
  if (what == "destroy" || what == "remove") report_end(id, "its container is gone");
  if (what != "die" && what != "died") return;
  report_end(id, ending(exit_code, out_of_memory));
}

// A container that is weakened while it runs, or gets a network, is ended.
void Watch::look_whether_changed(const std::string& id) {
  std::string name, shape;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watched_.find(id);
    if (found == watched_.end()) return;
    name = found->second.name;
    shape = found->second.shape;
  }
  const auto seen = services_.engine.find(id, Budget(Budget::kUsual, end_.get()));
  if (!seen || member(member(*seen, "State"), "Running") != Json(true) || shape_of(*seen) == shape) return;
  report_end(id, "its container's settings were changed from outside");
  services_.kill(id, name, std::chrono::milliseconds(0));
}

void Watch::take_stock() {
  std::map<std::string, std::string> states;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, each] : watched_) states[id] = "";
  }
  for (const Json& each : services_.engine.list(ours(services_), Budget(Budget::kUsual, end_.get())))
    if (const auto found = states.find(text_at(each, "Id")); found != states.end())
      found->second = text_at(each, "State");
  for (const auto& [id, state] : states) {
    if (state.empty()) report_end(id, "its container is gone");
    if (state != "exited" && state != "dead") {
      look_whether_changed(id);
      continue;
    }
    const Json now = services_.engine.inspect(id, Budget(Budget::kUsual, end_.get())).value("State", Json());
    const Json& code = member(now, "ExitCode");
    report_end(id,
               ending(code.is_number_integer() ? code.dump() : "", member(now, "OOMKilled") == Json(true)));
  }
}

void Watch::report_end(const std::string& id, const std::string& how) {
  Watched ended;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watched_.find(id);
    if (found == watched_.end()) return;
    ended = std::move(found->second);
    watched_.erase(found);
  }
  services_.warn("the container " + ended.name + " of a sandbox: " + how);
  if (const auto link = ended.link.lock()) link->close(how);
}

}  // namespace isogate::docker
