// How much disk the sandboxes have, and may have: of each, and of all of a tenant together. The front's one
// thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "gateway/front/sandboxes/sandbox_register.h"

namespace isogate::front {

class TenantDisks {
 public:
  TenantDisks(boost::asio::any_io_executor executor, const SandboxRegister& records)
      : executor_(std::move(executor)), records_(records) {}

  void set_limit(uint64_t bytes_per_tenant) { most_ = bytes_per_tenant; }  // 0: none

  // Asks for the disk use of the tenant's open sandboxes, at most a thousand; empty: of all tenants.
  // After a second, sandboxes without a reply keep their last known value.
  boost::asio::awaitable<void> look(std::string tenant);
  struct Total {
    uint64_t used_bytes = 0, limit_bytes = 0;
  };
  // By tenant, as far as it is known; the same.
  [[nodiscard]] std::map<std::string, Total> totals(const std::string& tenant) const;

  // Before a sandbox may have this much: whether all that its tenant's sandboxes may have stays within the
  // tenant's limit. Throws ApiError. What cannot be summed is too much.
  void check(const Sandbox& sandbox, std::optional<uint64_t> limit) const;

 private:
  boost::asio::awaitable<void> ask_all(std::string tenant);

  boost::asio::any_io_executor executor_;
  const SandboxRegister& records_;
  std::set<std::string> looking_at_;  // of these tenants
  uint64_t most_ = 0;
};

// How much it may have, 0: as much as there is. None: it was not told in time.
boost::asio::awaitable<std::optional<uint64_t>> ask_for_disk(Sandbox& sandbox,
                                                             std::shared_ptr<BackendChannel> channel);

}  // namespace isogate::front
