// How many calls other than execs a backend host works on: transfers, listings, opens; and, in a separate
// gate, connections to ports. Each holds one of the host's workers as long as its client takes, so one
// tenant may only hold its share of them. Durable writes wait for a disk that may be slow: they never hold
// more than half of all places, and one tenant's no more than an eighth. Watches have no end: they have
// separate places. The front's one thread.
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
  struct Kind;

  explicit CallGate(std::string what = "file calls") : what_(std::move(what)) {}

  class Ticket {  // must not outlive its gate
   public:
    // Takes a place of `kind`, and of `also` unless that is null.
    Ticket(Kind& kind, Kind* also, std::string tenant)
        : kind_(&kind), also_(also), tenant_(std::move(tenant)) {
      kind.add(tenant_);
      if (also_ != nullptr) also_->add(tenant_);
    }
    Ticket(Ticket&& other) noexcept
        : kind_(std::exchange(other.kind_, nullptr)), also_(other.also_), tenant_(std::move(other.tenant_)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (kind_ == nullptr) return;
      kind_->remove(tenant_);
      if (also_ != nullptr) also_->remove(tenant_);
    }

   private:
    Kind *kind_, *also_;
    std::string tenant_;
  };

  void resize(uint32_t all, uint32_t per_tenant) {
    calls_.most = all;
    calls_.most_of_one = per_tenant;
    durable_.most = std::max(all / 2, 1u);
    durable_.most_of_one = std::clamp(all / 8, 1u, std::max(per_tenant, 1u));
  }
  void resize_watches(uint32_t all, uint32_t per_tenant) {
    watches_.most = all;
    watches_.most_of_one = per_tenant;
  }

  Ticket enter(const std::string& tenant, bool durable = false) {  // throws ApiError
    calls_.check(tenant, what_);
    if (durable) durable_.check(tenant, "durable writes");
    return {calls_, durable ? &durable_ : nullptr, tenant};
  }
  Ticket enter_watch(const std::string& tenant) {  // throws ApiError
    watches_.check(tenant, "watches");
    return {watches_, nullptr, tenant};
  }

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

 private:
  std::string what_;  // for its refusals
  Kind calls_, durable_, watches_;
};

}  // namespace isogate::front
