#include "plugins/docker/watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "lib/thread.h"
#include "plugins/common/or_throw.h"
#include "plugins/docker/container/container_state.h"
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
          {"event", {"die", "destroy", "update", "connect", "disconnect"}}};
}

}  // namespace

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
    const bool of_network = text_at(event, "Type") == "network";
    const std::string id =
        of_network ? text_at(member(actor, "Attributes"), "container") : text_at(actor, "ID");
    const std::string what = text_at(event, "Action");
    const bool ended = what == "die" || what == "died" || what == "destroy" || what == "remove";
    if (ended || what == "update" || what == "connect" || what == "disconnect") look(id, ended);
  }
}

// A container that is weakened while it runs, or gets a network, is ended.
void Watch::look(const std::string& id, bool ended) {
  std::string name, shape;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watched_.find(id);
    if (found == watched_.end()) return;
    name = found->second.name;
    shape = found->second.shape;
  }
  std::string how = ended ? "its container ended" : "";  // perhaps to be started again
  bool changed = false;
  try {
    const ContainerState now = look_at(services_.engine, {}, id, Budget(Budget::kUsual, end_.get()));
    if (std::string more = how_it_ended(now); !more.empty()) how = std::move(more);
    changed = how.empty() && now.shape != shape;
  } catch (const sdk::Error&) {
    if (!ended || is_signalled(end_.get())) throw;
  }
  if (changed) how = "its container's settings were changed from outside";
  if (how.empty()) return;
  report_end(id, how);
  if (changed) services_.kill(id, name, std::chrono::milliseconds(0));
}

void Watch::take_stock() {
  std::vector<std::string> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, each] : watched_) all.push_back(id);
  }
  std::exception_ptr failure;  // of one, which must not hide the ends of others
  for (const std::string& id : all) {
    try {
      look(id, false);
    } catch (const sdk::Error&) {
      if (is_signalled(end_.get())) throw;
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
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
