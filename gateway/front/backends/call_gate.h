// How many calls of one kind other than execs a backend host works on: file calls (transfers, listings,
// opens), durable writes among them, watches, connections to ports. Each holds one of the host's workers as
// long as its client takes, so one tenant may only hold its share of them. Durable writes wait for a disk
// that may be slow: they never hold more than half of all file calls, and one tenant's no more than an
// eighth. Watches have no end: they have separate places. The front's one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "gateway/front/base/api_error.h"

namespace isogate::front {

class CallGate {
 public:
  explicit CallGate(std::string what) : what_(std::move(what)) {}
  CallGate(const CallGate&) = delete;
  CallGate& operator=(const CallGate&) = delete;

  void resize(uint32_t all, uint32_t per_tenant) {
    most_ = all;
    most_of_one_ = per_tenant;
  }
  // For the durable writes among so many file calls.
  void resize_durable(uint32_t all, uint32_t per_tenant) {
    resize(std::max(all / 2, 1u), std::clamp(all / 8, 1u, std::max(per_tenant, 1u)));
  }

  // A place, free again once nobody has it; it must not outlive its gate. Throws ApiError.
  [[nodiscard]] std::shared_ptr<void> enter(const std::string& tenant) {
    const auto own = of_.find(tenant);
    const bool full = all_ >= most_;
    if (full || (own != of_.end() && own->second >= most_of_one_))
      throw ApiError{.code = Code::kRateLimited,
                     .message = full ? std::to_string(most_) + " " + what_ + " are under way; try again later"
                                     : std::to_string(most_of_one_) + " " + what_ +
                                           " of this tenant are under way; try again when one has ended",
                     .retry_after_sec = 1};
    ++of_[tenant];
    ++all_;
    return {this, [tenant](CallGate* gate) { gate->leave(tenant); }};
  }

 private:
  void leave(const std::string& tenant) {
    --all_;
    const auto own = of_.find(tenant);
    if (--own->second == 0) of_.erase(own);
  }

  const std::string what_;  // for its refusals
  uint32_t most_ = 0, most_of_one_ = 0, all_ = 0;
  std::unordered_map<std::string, uint32_t> of_;
};

}  // namespace isogate::front
