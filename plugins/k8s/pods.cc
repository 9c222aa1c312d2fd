#include "plugins/k8s/pods.h"

#include <nlohmann/json.hpp>

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPoll{50}, kAskAgain{3'000}, kAsk{10'000}, kAskWatching{3'000};

std::string name_of(const Json& pod) { return pod.at("metadata").at("name").get<std::string>(); }

}  // namespace

Pods::Pods(Api& api, std::string name_space, std::string selector,
           std::function<void(const std::string&)> log)
    : api_(api), name_space_(std::move(name_space)), selector_(std::move(selector)), log_(std::move(log)) {}

Pods::~Pods() {
  std::unique_ptr<Watch> watch;
  {
    const std::lock_guard lock(mutex_);
    watch = std::move(watch_);
  }
}

// With the mutex held.
void Pods::begin() {
  if (watch_) return;
  WatchEvents events;
  events.added = events.modified = [this](const Json& pod) { hear(pod, false); };
  events.deleted = [this](const Json& pod) { hear(pod, true); };
  events.lost = [this](const std::string& why) {
    log_("what becomes of pods is not told any more (" + why + "); tried again until it is");
  };
  events.restored = [this] { log_("what becomes of pods is told again"); };
  watch_ = std::make_unique<Watch>(api_, Resource{"v1", name_space_, "pods"}, Selection{selector_}, events);
}

void Pods::hear(const Json& pod, bool deleted) {
  PodState state = state_of(pod);
  if (deleted) {
    if (!state.ended && may_be_there(name_of(pod), state.uid)) return;
    state.exists = state.running = false;
    state.ended = state.stopped = true;
    if (state.how.empty()) state.how = "its pod was deleted";
  }
  std::shared_ptr<sdk::RunnerLink> link;
  {
    const std::string name = name_of(pod);
    const std::lock_guard lock(mutex_);
    if (awaited_.contains(name)) {
      auto& known = states_[name];
      known = {state, known.second + 1};
      changed_.notify_all();
    }
    const auto found = followed_.find(name);
    if (!state.ended || found == followed_.end() || found->second.uid != state.uid) return;
    link = found->second.link.lock();
    followed_.erase(found);
  }
  log_("the pod " + name_of(pod) + " of a sandbox: " + state.how);
  if (link) link->close(state.how);
}

// What a watch calls deleted may have lost a label, no more.
bool Pods::may_be_there(const std::string& name, const std::string& uid) {
  try {
    const PodState now = look(name, Budget(kAskWatching));
    if (now.ended || now.uid != uid) return false;
    log_("the pod " + name + " of a sandbox has lost a label: what becomes of it is not told any more");
  } catch (const sdk::Error& error) {
    log_("what became of the pod " + name + " of a sandbox cannot be found out: " + error.what());
  }
  return true;
}

PodState Pods::look(const std::string& name, const Budget& budget) {
  try {
    return state_of(api_.get({"v1", name_space_, "pods", name}, budget));
  } catch (const ApiError& error) {
    if (error.status() != ISOGATE_NOT_FOUND) throw;
    PodState gone;
    gone.ended = gone.stopped = true;
    gone.how = "its pod is gone";
    return gone;
  }
}

PodState Pods::await(const std::string& name, const sdk::Call& call, milliseconds most,
                     const std::function<bool(const PodState&)>& done) {
  struct Awaited {  // while this waits
    Pods& pods;
    const std::string& name;
    ~Awaited() {
      const std::lock_guard lock(pods.mutex_);
      if (--pods.awaited_[name] > 0) return;
      pods.awaited_.erase(name);
      pods.states_.erase(name);
    }
  };
  {
    const std::lock_guard lock(mutex_);
    ++awaited_[name];
    begin();
  }
  const Awaited awaited{*this, name};
  const auto until = Clock::now() + most;
  PodState state = look(name, Budget(call, kAsk));
  auto asked = Clock::now();
  for (uint64_t seen = 0; !done(state) && Clock::now() < until;) {
    call.check();
    if (Clock::now() - asked > kAskAgain) {
      state = look(name, Budget(call, kAsk));
      asked = Clock::now();
      continue;
    }
    std::unique_lock lock(mutex_);
    const auto news = [&] { return states_.contains(name) && states_[name].second != seen; };
    if (!changed_.wait_for(lock, kPoll, news)) continue;
    std::tie(state, seen) = states_[name];
    asked = Clock::now();
  }
  return state;
}

void Pods::follow(const std::string& name, const std::string& uid,
                  const std::shared_ptr<sdk::RunnerLink>& link) {
  const std::lock_guard lock(mutex_);
  followed_[name] = {uid, link};
  begin();
}

void Pods::forget(const std::string& name) {
  const std::lock_guard lock(mutex_);
  followed_.erase(name);
}

}  // namespace isogate::k8s
