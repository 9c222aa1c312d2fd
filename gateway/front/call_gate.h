// How many calls other than execs a backend's host works on: transfers, listings, opens. Each holds one of
// the host's workers for as long as its client takes, so one tenant may hold its share of them only. The
// front's one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "gateway/front/api_error.h"

namespace isogate::front {

class CallGate {
 public:
  class Ticket {  // must not outlive its gate
   public:
    Ticket(CallGate& gate, std::string tenant) : gate_(&gate), tenant_(std::move(tenant)) {
      ++gate.all_;
      ++gate.of_[tenant_];
    }
    Ticket(Ticket&& other) noexcept
        : gate_(std::exchange(other.gate_, nullptr)), tenant_(std::move(other.tenant_)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (gate_ == nullptr) return;
      --gate_->all_;
      const auto own = gate_->of_.find(tenant_);
      if (--own->second == 0) gate_->of_.erase(own);
    }

   private:
    CallGate* gate_;
    std::string tenant_;
  };

  void resize(uint32_t all, uint32_t per_tenant) {
    most_ = all;
    most_per_tenant_ = per_tenant;
  }

  Ticket enter(const std::string& tenant) {  // throws ApiError
    const auto own = of_.find(tenant);
    const bool full = all_ >= most_;
    if (!full && (own == of_.end() || own->second < most_per_tenant_)) return {*this, tenant};
    throw ApiError{
        .code = Code::kRateLimited,
        .message = full ? std::to_string(most_) + " file calls are under way; try again later"
                        : std::to_string(most_per_tenant_) +
                              " file calls of this tenant are under way; try again when one has ended",
        .retry_after_sec = 1};
  }

 private:
  uint32_t most_ = 0, most_per_tenant_ = 0, all_ = 0;
  std::unordered_map<std::string, uint32_t> of_;
};

}  // namespace isogate::front
