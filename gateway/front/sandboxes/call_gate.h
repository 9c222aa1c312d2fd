// How many calls other than execs a backend's host works on: transfers, listings, opens. Each holds one of
// the host's workers for as long as its client takes, so one tenant may hold its share of them only. Durable
// writes wait for a disk that may be slow: they never hold more than half of all, and one tenant's no more
// than an eighth. The front's one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "gateway/front/base/api_error.h"

namespace isogate::front {

class CallGate {
 public:
  class Ticket {  // must not outlive its gate
   public:
    Ticket(CallGate& gate, std::string tenant, bool durable)
        : gate_(&gate), tenant_(std::move(tenant)), durable_(durable) {
      gate.calls_.add(tenant_);
      if (durable_) gate.durable_.add(tenant_);
    }
    Ticket(Ticket&& other) noexcept
        : gate_(std::exchange(other.gate_, nullptr)),
          tenant_(std::move(other.tenant_)),
          durable_(other.durable_) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (gate_ == nullptr) return;
      gate_->calls_.remove(tenant_);
      if (durable_) gate_->durable_.remove(tenant_);
    }

   private:
    CallGate* gate_;
    std::string tenant_;
    bool durable_;
  };

  void resize(uint32_t all, uint32_t per_tenant) {
    calls_.most = all;
    calls_.most_of_one = per_tenant;
    durable_.most = std::max(all / 2, 1u);
    durable_.most_of_one = std::clamp(all / 8, 1u, std::max(per_tenant, 1u));
  }

  Ticket enter(const std::string& tenant, bool durable = false) {  // throws ApiError
    calls_.check(tenant, "file calls");
    if (durable) durable_.check(tenant, "durable writes");
    return {*this, tenant, durable};
  }

 private:
  struct Kind {
    uint32_t most = 0, most_of_one = 0, all = 0;
    std::unordered_map<std::string, uint32_t> of;

    void add(const std::string& tenant) {
      ++all;
      ++of[tenant];
    }
    void remove(const std::string& tenant) {
      --all;
      const auto own = of.find(tenant);
      if (--own->second == 0) of.erase(own);
    }
    void check(const std::string& tenant, const std::string& what) const {
      const auto own = of.find(tenant);
      const bool full = all >= most;
      if (!full && (own == of.end() || own->second < most_of_one)) return;
      throw ApiError{.code = Code::kRateLimited,
                     .message = full ? std::to_string(most) + " " + what + " are under way; try again later"
                                     : std::to_string(most_of_one) + " " + what +
                                           " of this tenant are under way; try again when one has ended",
                     .retry_after_sec = 1};
    }
  };
  Kind calls_, durable_;
};

}  // namespace isogate::front
