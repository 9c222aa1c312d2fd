#include "gateway/front/sandboxes/tenant_disks.h"

#include <boost/asio/co_spawn.hpp>

#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr size_t kMostLookedAt = 1000;
constexpr std::chrono::seconds kLookPatience{1};

// Empty: of any tenant.
bool is_known_of(const Sandbox& sandbox, const std::string& tenant) {
  return sandbox.known && (tenant.empty() || sandbox.row.tenant == tenant);
}

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

asio::awaitable<void> TenantDisks::look(std::string tenant) {
  if (!looking_at_.insert(tenant).second) co_return;  // behind a slow backend: what is known has to do
  const auto done = std::make_shared<Event>(executor_);
  asio::co_spawn(executor_, ask_all(tenant), [this, tenant, done](const std::exception_ptr&) {
    looking_at_.erase(tenant);
    done->set();
  });
  co_await done->wait_for(kLookPatience);
}

asio::awaitable<void> TenantDisks::ask_all(std::string tenant) {
  std::vector<SandboxPtr> open;
  for (const auto& [id, sandbox] : records_.all()) {
    if (open.size() == kMostLookedAt) break;
    if (is_known_of(*sandbox, tenant) && sandbox->open_in && !sandbox->changing) open.push_back(sandbox);
  }
  for (const auto& sandbox : open) {
    const auto channel = sandbox->open_in;
    if (channel == nullptr || !channel->open() || sandbox->changing) continue;
    (void)co_await ask_for_disk(*sandbox, channel);
  }
}

std::map<std::string, TenantDisks::Total> TenantDisks::totals(const std::string& tenant) const {
  std::map<std::string, Total> totals;
  for (const auto& [id, sandbox] : records_.all()) {
    if (!is_known_of(*sandbox, tenant) || !sandbox->disk) continue;
    Total& total = totals[sandbox->row.tenant];
    total.used_bytes += sandbox->disk->used_bytes;
    total.limit_bytes += sandbox->disk->limit_bytes;
  }
  return totals;
}

void TenantDisks::check(const Sandbox& sandbox, std::optional<uint64_t> limit) const {
  const SandboxRow& row = sandbox.row;
  if (most_ == 0) return;
  const auto refuse = [&](const std::string& why) {
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = "this tenant's sandboxes may have " + mib(most_) +
                              " of disk together (limits.max_disk_mb_per_tenant), and " + why};
  };
  if (!limit)
    throw ApiError{
        .code = Code::kBackendUnavailable,
        .message = "backend `" + row.backend + "` does not say how much disk this sandbox may have",
        .retry_after_sec = 1};
  if (*limit == 0)
    refuse("backend `" + row.backend + "` sets this one no limit: configure limits.disk_mb of it");
  // One that is there goes on; a limit that grew is another matter.
  const uint64_t before = row.disk_limit_bytes.value_or(0);
  if (row.was_accepted() && (before == 0 || *limit <= before)) return;
  uint64_t others = 0;
  for (const auto& [id, other] : records_.all()) {
    if (other.get() == &sandbox || other->row.tenant != row.tenant) continue;
    const auto has = other->row.disk_limit_bytes;
    if (!has && !other->row.was_accepted()) continue;
    if (has && *has == 0)
      refuse("that of agent `" + printable(other->row.agent_id, 70) +
             "` has no limit: use it once more, or end it");
    others += has.value_or(*limit);  // not known yet: as much as this one, till it is opened again
  }
  if (*limit > most_ || others > most_ - *limit)
    refuse("the others have " + mib(others) + ", this one would have " + mib(*limit) +
           "; end some with DELETE /sandboxes/{agent_id}?purge=true");
}

asio::awaitable<std::optional<uint64_t>> ask_for_disk(Sandbox& sandbox,
                                                      std::shared_ptr<BackendChannel> channel) {
  ipc::FileCall call;
  call.call.request_id = "disk-use";
  call.verb = ipc::FileVerb::kDiskUse;
  call.sandbox_id = sandbox.row.sandbox_id;
  OnBehalf whose(sandbox.row.tenant, nullptr);
  const ipc::Reply reply = co_await channel->call(std::move(call), nullptr, std::move(whose));
  if (const auto* use = std::get_if<isogate_disk_use>(&reply.value)) {
    sandbox.disk = *use;
    co_return use->limit_bytes;
  }
  if (reply.status != ISOGATE_UNSUPPORTED) co_return std::nullopt;
  sandbox.disk.reset();
  co_return 0;
}

}  // namespace isogate::front
