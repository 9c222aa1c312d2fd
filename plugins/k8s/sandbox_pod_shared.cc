// A sandbox that several gateways may have open, or that one had when it was killed.
#include <algorithm>
#include <thread>

#include "plugins/k8s/presence.h"
#include "plugins/k8s/sandbox_pod_impl.h"

namespace isogate::k8s {
namespace {

constexpr std::chrono::milliseconds kPause{200};
constexpr size_t kManyUsers = 16;  // then those that are gone are taken off

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

// This gateway is among those that use it, and nobody is at work on it, as of now: so it is written also
// where it says so already. False: somebody else has written, look again.
bool SandboxPod::join(const sdk::Call& call) {
  Record& record = lease_.record();
  if (record.users.size() >= kManyUsers) record.users = other_users(call);
  if (!has(record.users, services_.holder)) record.users.push_back(services_.holder);
  try {
    if (lease_.join(call)) return true;
  } catch (...) {  // it may be written all the same
    forget_user();
    throw;
  }
  let_go();
  return false;
}

// On record, whether they live or not.
bool SandboxPod::has_others() const {
  const auto& users = lease_.record().users;
  return std::any_of(users.begin(), users.end(),
                     [this](const std::string& each) { return each != services_.holder; });
}

// Those that live, without this gateway.
std::vector<std::string> SandboxPod::other_users(const sdk::Call& call) {
  std::vector<std::string> left;
  for (const std::string& each : lease_.record().users)
    if (each != services_.holder && services_.presence->lives(each, call)) left.push_back(each);
  return left;
}

// Nothing of it is used here any more.
void SandboxPod::forget_user() noexcept {
  let_go();
  try {
    const isogate_call soon = cleaning_up();
    const sdk::Call call(soon);
    for (const Budget budget(call); !budget.over(); std::this_thread::sleep_for(kPause)) {
      if (!lease_.find(budget) || lease_.is_ending()) return;
      if (lease_.is_others()) continue;
      if (std::erase(lease_.record().users, services_.holder) == 0 || lease_.join(budget)) return;
    }
  } catch (const std::exception& error) {
    services_.warn(std::string("a sandbox may count as used here until this gateway ends: ") + error.what());
  }
}

// What cannot be used as it is ends, if it is nobody else's. With its workspace, where that is the pod's by
// the configuration, too.
void SandboxPod::take_up(const sdk::Call& call) {
  if (lease_.record().place() == Place::kEmptyDir) check_place(call);
  if (adopt(call) && join(call)) return;
  attach();
  stop(call);
  throw sdk::Error(ISOGATE_NO_SANDBOX, "what ran of it could not be taken up as it was");
}

}  // namespace isogate::k8s
