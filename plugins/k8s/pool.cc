#include "plugins/k8s/pool.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

#include "plugins/k8s/presence.h"
#include "plugins/k8s/sandbox_pod_impl.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLook{5'000}, kFirstPause{1'000}, kLongestPause{60'000};
constexpr seconds kRenew{30}, kCleanAgain{60};
constexpr size_t kAtOnce = 4;

bool same(const isogate_limits& a, const isogate_limits& b) {
  return a.memory_bytes == b.memory_bytes && a.cpu_millis == b.cpu_millis;
}

std::string random_id() {
  unsigned char bytes[26];
  if (::getentropy(bytes, sizeof bytes) != 0) sdk::fail_with_errno("cannot draw a random name", errno);
  std::string id = "isg-";
  for (const unsigned char byte : bytes) id += "abcdefghijklmnopqrstuvwxyz234567"[byte & 31];
  return id;
}

isogate_call call_until(int cancel_fd) { return {sizeof(isogate_call), cancel_fd, INT64_MAX, {}}; }

}  // namespace

Pool::Pool(Services& services, unsigned size, Parts like, const isogate_limits& limits)
    : services_(services),
      size_(size),
      like_(std::move(like)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stopping_(call_until(stop_.get())),
      wanted_(limits) {
  if (!stop_) sdk::fail_with_errno("cannot make an eventfd", errno);
  thread_ = std::thread([this] { run(); });
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  changed_.notify_all();
  thread_.join();
  // An API server that does not answer once is not waited for again: what stays expires.
  refused_ = false;
  for (; !ready_.empty() && !refused_; ready_.pop_front()) remove(std::move(ready_.front()));
}

void Pool::run() {
  milliseconds pause = kFirstPause;
  for (;;) {
    if (const std::lock_guard lock(mutex_); ending_) return;
    milliseconds time = kLook;
    try {
      drop_the_dead();
      renew();
      fill();
      if (Clock::now() - cleaned_ > kCleanAgain) {
        remove_leftovers();
        stop_the_forsaken();
        cleaned_ = Clock::now();
      }
      pause = kFirstPause;
    } catch (const std::exception& error) {
      if (sdk::Call(stopping_).cancelled()) return;
      services_.warn("no sandbox can be made ahead, next try in " + std::to_string(pause.count() / 1000) +
                     " s: " + error.what());
      time = std::exchange(pause, std::min(pause * 2, kLongestPause));
    }
    std::unique_lock lock(mutex_);
    const auto wakes = [this, &pause] {
      return ending_ || (pause == kFirstPause && services_.serves && ready_.size() < size_);
    };
    changed_.wait_for(lock, time, wakes);
  }
}

// Some at a time: most of what a pod takes to start is waiting.
void Pool::fill() {
  for (;;) {
    isogate_limits wanted;
    size_t missing = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ending_ || !services_.serves || ready_.size() >= size_) return;
      wanted = wanted_;
      missing = size_ - ready_.size();
    }
    std::vector<std::future<Ready>> making;
    for (size_t i = 0; i < std::min(missing, kAtOnce); ++i)
      making.push_back(std::async(std::launch::async, [this, wanted] { return make(wanted); }));
    std::exception_ptr failure;
    for (auto& each : making) {
      try {
        Ready made = each.get();
        const std::lock_guard lock(mutex_);
        ready_.push_back(std::move(made));
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    renew();
  }
}

Pool::Ready Pool::make(const isogate_limits& limits) {
  Ready ready;
  ready.limits = limits;
  Parts parts = like_;
  parts.owner.sandbox_id = random_id();
  parts.ahead = true;
  ready.pod = std::make_unique<SandboxPod>(services_, parts, limits);
  ready.pod->open({}, sdk::Call(stopping_));
  ready.renewed = Clock::now();
  try {
    ready.measured = ready.pod->measure(sdk::Call(stopping_));
  } catch (...) {
    remove(std::move(ready));
    throw;
  }
  return ready;
}

// What cannot be removed now expires.
void Pool::remove(Ready ready) noexcept {
  try {
    const isogate_call soon = cleaning_up();
    ready.pod->drop(sdk::Call(soon));
  } catch (const std::exception& error) {
    services_.warn(std::string("a sandbox made ahead stays for now: ") + error.what());
    refused_ = true;
  }
}

void Pool::remove_leftovers() {
  const std::string selector =
      selector_of(like_.owner.instance, like_.owner.backend) + "," + kLabelAhead + "=ready";
  const Json leases = services_.api.list(services_.leases(), {selector, "", 500}, sdk::Call(stopping_));
  for (const Json& each : leases.at("items")) {
    sdk::Call(stopping_).check();
    Owner owner = like_.owner;
    owner.sandbox_id = each.at("metadata").value("name", "");
    if (hold_of(each).holder.empty() || !is_free(each) || !carries(each, owner)) continue;
    services_.info("a sandbox made ahead by a gateway that is gone is removed: " + owner.sandbox_id);
    remove_version(services_, services_.leases(owner.sandbox_id), each, sdk::Call(stopping_));
  }
}

// Nobody is at work on it.
bool Pool::is_free(const Json& lease) {
  const Hold hold = hold_of(lease);
  return hold.holder.empty() ||
         services_.renewals.lapsed(lease.at("metadata").value("name", ""), hold.version, hold.lasts);
}

bool Pool::is_forsaken(const Json& lease, const std::set<std::string>& living) {
  const Json& metadata = lease.at("metadata");
  Owner owner = like_.owner;
  owner.sandbox_id = metadata.value("name", "");
  if (metadata.at("labels").contains(kLabelAhead) || !carries(lease, owner)) return false;
  const Record record = read_record(lease);
  const auto is_used = [&](const std::string& each) {
    return each == services_.holder || living.contains(each);
  };
  return !record.pod_uid.empty() && record.place() != Place::kEmptyDir && is_free(lease) &&
         std::none_of(record.users.begin(), record.users.end(), is_used);
}

// A gateway that comes back within the time takes up what it had. What is this one's own is its front's to
// end.
void Pool::stop_the_forsaken() {
  if (services_.config.workspace == Place::kEmptyDir) return;
  const sdk::Call call(stopping_);
  const auto living = services_.presence->all(call);
  const std::string selector = selector_of(like_.owner.instance, like_.owner.backend);
  const Json leases = services_.api.list(services_.leases(), {selector, "", 500}, call);
  decltype(forsaken_) still;
  for (const Json& each : leases.at("items")) {
    const std::string id = each.at("metadata").value("name", "");
    try {
      if (!is_forsaken(each, living)) continue;
      const auto known = forsaken_.find(id);
      still[id] = known == forsaken_.end() ? Clock::now() : known->second;
      if (Clock::now() - still[id] < seconds(services_.config.forsaken_after_sec)) continue;
      services_.info("no gateway that used " + id + " is there any more: its pod is stopped");
      Parts parts = like_;
      parts.owner.sandbox_id = id;
      SandboxPod(services_, parts, {}).end(call);
    } catch (const sdk::Error& error) {
      if (error.status() == ISOGATE_CANCELLED) throw;
      services_.warn_once(id + " was left running: " + error.what());
    }
  }
  forsaken_ = std::move(still);
}

void Pool::drop_the_dead() {
  std::deque<Ready> dead;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = ready_.begin(); each != ready_.end();) {
      const bool other = misses_ > 1 && !same(each->limits, wanted_);
      if (each->pod->warm() && !other) {
        ++each;
        continue;
      }
      dead.push_back(std::move(*each));
      each = ready_.erase(each);
    }
  }
  for (Ready& each : dead) remove(std::move(each));
}

// The first ones are made before anybody has said what to measure.
bool Pool::is_due(const Ready& ready) const {
  return Clock::now() - ready.renewed > kRenew || (!ready.measured && services_.gateway());
}

// Out of the others' sight meanwhile: who takes one writes its Lease, too.
void Pool::renew() {
  for (;;) {
    Ready due;
    {
      const std::lock_guard lock(mutex_);
      const auto found =
          std::find_if(ready_.begin(), ready_.end(), [this](const Ready& each) { return is_due(each); });
      if (found == ready_.end()) return;
      due = std::move(*found);
      ready_.erase(found);
    }
    std::exception_ptr failure;
    try {
      if (!due.pod->renew(sdk::Call(stopping_))) continue;
      due.renewed = Clock::now();
      if (!due.measured) due.measured = due.pod->measure(sdk::Call(stopping_));
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(due));
    }
    if (failure) std::rethrow_exception(failure);
  }
}

// What takers ask for twice in a row and do not find is made from then on.
std::optional<Pool::Ready> Pool::pick(const isogate_limits& limits) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(ready_.begin(), ready_.end(), [&](const Ready& each) {
    return same(each.limits, limits) && each.pod->warm();
  });
  if (found == ready_.end()) {
    if (!same(wanted_, limits) && ++misses_ > 1) wanted_ = limits;
    changed_.notify_all();
    return std::nullopt;
  }
  misses_ = 0;
  Ready taken = std::move(*found);
  ready_.erase(found);
  changed_.notify_all();
  return taken;
}

std::optional<ReadyPod> Pool::take(const isogate_limits& limits, const Parts& taker, const sdk::Call& call) {
  for (;;) {
    call.check();
    auto ready = pick(limits);
    if (!ready) return std::nullopt;
    try {
      if (auto given = ready->pod->give_to(taker, call)) return given;
    } catch (const sdk::Error& error) {
      remove(std::move(*ready));
      if (error.status() == ISOGATE_CANCELLED) throw;
      services_.warn(std::string("a sandbox made ahead could not be taken: ") + error.what());
      continue;
    }
    remove(std::move(*ready));
  }
}

std::string Pool::text() const {
  const std::lock_guard lock(mutex_);
  return std::to_string(ready_.size()) + " of " + std::to_string(size_) + " sandboxes ready ahead";
}

}  // namespace isogate::k8s
