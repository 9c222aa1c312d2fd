#include "plugins/k8s/renewals.h"

namespace isogate::k8s {
namespace {

constexpr size_t kMost = 16'384;
constexpr std::chrono::hours kForgotten{2};  // not checked for this long

}  // namespace

bool Renewals::lapsed(const std::string& name, const std::string& version, std::chrono::seconds lasts,
                      Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (seen_.size() >= kMost && !seen_.contains(name)) make_room(now);
  Seen& seen = seen_.try_emplace(name, Seen{version, now, now}).first->second;
  if (seen.version != version) seen = {version, now, now};
  seen.looked = now;
  return now - seen.since > lasts;
}

// Too little is known then, and every remaining Lease counts as renewed.
void Renewals::make_room(Clock::time_point now) {
  std::erase_if(seen_, [&](const auto& each) { return now - each.second.looked > kForgotten; });
  if (seen_.size() >= kMost) seen_.clear();
}

}  // namespace isogate::k8s
