#include "gateway/front/exec/long_execs.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <csignal>
#include <string_view>

#include "gateway/front/base/api_error.h"

namespace isogate::front {
namespace asio = boost::asio;

void LongExecs::add(std::shared_ptr<LongExec> exec, std::chrono::nanoseconds keep) {
  tenants_[exec->tenant()][exec->answer().exec_id] = {exec, nullptr};
  asio::co_spawn(executor_, keep_until(*this, exec, keep), asio::detached);
}

Task<void> LongExecs::keep_until(LongExecs& execs, std::shared_ptr<LongExec> exec,
                                 std::chrono::nanoseconds keep) {
  co_await exec->at_end().wait();
  execs.has_ended(*exec, keep);
}

void LongExecs::has_ended(const LongExec& exec, std::chrono::nanoseconds keep) {
  const std::string tenant = exec.tenant(), id = exec.answer().exec_id;
  Kept& kept = tenants_[tenant][id];
  kept.forget = std::make_unique<Alarm>(executor_);
  kept.forget->set(keep, [this, tenant, id] { forget(tenant, id); });
  ended_.push_back({tenant, id});
  const auto is_mine = [&](const Ended& each) { return is_of(each, tenant); };
  if (static_cast<size_t>(std::ranges::count_if(ended_, is_mine)) > kMostEnded) forget_oldest(tenant, 0);
}

bool LongExecs::forget_oldest(const std::string& tenant, uint64_t least, Has has) {
  struct Part {
    uint64_t size = 0;
    const Ended* oldest = nullptr;
  };
  std::map<std::string_view, Part> parts;
  uint64_t all = 0;
  for (const Ended& each : ended_) {
    if (!is_of(each, tenant)) continue;
    const auto exec = find(each.tenant, each.exec_id);
    const uint64_t its = exec->is_read() ? 0 : (*exec.*has)();
    Part& part = parts[each.tenant];
    if (part.oldest == nullptr && (least == 0 || its > 0)) part.oldest = &each;
    part.size += its;
    all += its;
  }
  const auto most = std::ranges::max_element(parts, {}, [](const auto& each) { return each.second.size; });
  if (most == parts.end() || most->second.oldest == nullptr || all < least) return false;
  const Ended oldest = *most->second.oldest;
  forget(oldest.tenant, oldest.exec_id);
  return true;
}

// The alarm that calls this is among what goes.
void LongExecs::forget(const std::string& tenant, const std::string& exec_id) {
  const auto mine = tenants_.find(tenant);
  if (mine == tenants_.end()) return;
  const auto gone = mine->second.extract(exec_id);
  std::erase_if(ended_, [&](const Ended& each) { return each.exec_id == exec_id; });
  if (mine->second.empty()) tenants_.erase(mine);
}

std::shared_ptr<LongExec> LongExecs::find(const std::string& tenant, const std::string& exec_id) const {
  const auto mine = tenants_.find(tenant);
  if (mine == tenants_.end()) return nullptr;
  const auto found = mine->second.find(exec_id);
  return found == mine->second.end() ? nullptr : found->second.exec;
}

std::vector<std::shared_ptr<LongExec>> LongExecs::of(const std::string& tenant) const {
  std::vector<std::shared_ptr<LongExec>> all;
  if (const auto mine = tenants_.find(tenant); mine != tenants_.end())
    for (const auto& each : mine->second) all.push_back(each.second.exec);
  return all;
}

void LongExecs::ask_all_to_end(bool leave) const {
  for (const auto& tenant : tenants_) {
    for (const auto& each : tenant.second) {
      try {
        if (!each.second.exec->ended() && !(leave && each.second.exec->detach()))
          each.second.exec->send_signal(SIGTERM);
      } catch (const ApiError&) {  // its control pipe is full: it is killed at the deadline
      }
    }
  }
}

}  // namespace isogate::front
