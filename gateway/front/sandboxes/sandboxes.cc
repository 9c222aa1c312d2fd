#include "gateway/front/sandboxes/sandboxes.h"

#include <boost/asio/co_spawn.hpp>
#include <map>
#include <utility>

#include "gateway/config/images.h"
#include "gateway/front/base/alarm.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kSettledWithin{20};
constexpr size_t kExpiredAtOnce = 8;  // of one tenant on one backend
constexpr seconds kExpiredAgain{30};  // what could not be ended

// Which one it has, or will have.
const std::string& image_of(const Sandbox& sandbox, const Wanted& wanted) {
  return sandbox.known || !wanted.image ? sandbox.row.image : *wanted.image;
}

void check_image_stays(const Sandbox& sandbox, const Wanted& wanted) {
  if (!sandbox.known || !wanted.image || *wanted.image == sandbox.row.image) return;
  const auto named = [](const std::string& image) {
    return image.empty() ? std::string("its backend's own image") : "image `" + image + "`";
  };
  throw ApiError{.code = Code::kAlreadyExists,
                 .message = "the sandbox of agent `" + printable(wanted.agent, 70) + "` has " +
                            named(sandbox.row.image) + ", not " + named(*wanted.image) +
                            ": an image is chosen once; end the sandbox with DELETE "
                            "/sandboxes/{agent_id}?purge=true, or name another agent"};
}

void check_image_admitted(const std::string& image, const BackendConfig& config) {
  if (image.empty() || image_admitted(config.images, image)) return;
  throw ApiError{.code = Code::kPermissionDenied,
                 .message = "image `" + image + "` is not admitted by `images` of backend `" + config.name +
                            "`: ask the operator for it, or leave `image` out"};
}

SelectRequest request_of(const Wanted& wanted) {
  return {.tenant = wanted.tenant,
          .backend = wanted.backend,
          .min_isolation = wanted.min_isolation,
          .capabilities = wanted.capabilities};
}

ApiError cannot_purge(const SandboxRow& row) {
  return {.code = Code::kBackendUnavailable,
          .message = "only backend `" + row.backend +
                     "`, which is no longer configured, can remove this sandbox's files: configure it "
                     "again, or delete without purge to forget the sandbox and leave its files there",
          .permanent = true};
}

}  // namespace

Sandboxes::Sandboxes(asio::any_io_executor executor, Backends& backends, State& state, std::string instance,
                     bool started_by_root)
    : records(executor, state, std::move(instance)),
      disks(executor, records),
      changes(backends, records, disks, started_by_root),
      upkeep(executor, backends, records, changes),
      executor_(std::move(executor)),
      backends_(backends) {}

Result<void> Sandboxes::load() {
  if (auto loaded = changes.load(); !loaded) return loaded;
  return records.load();
}

Decision Sandboxes::decide(const Sandbox& sandbox, const Wanted& wanted) const {
  SelectRequest request = request_of(wanted);
  if (!image_of(sandbox, wanted).empty()) request.capabilities |= ISOGATE_CAP_IMAGE;
  if (sandbox.known) {
    const auto backend = backends_.find(sandbox.row.backend);
    request.open = backend && backend->channel &&
                   (sandbox.open_in == backend->channel || sandbox.busy_before(*backend->channel));
    request.pinned = sandbox.row.backend;
    if (sandbox.row.was_accepted()) request.pinned_isolation = sandbox.row.isolation;
  }
  return backends_.decide(request);
}

asio::awaitable<Lease> Sandboxes::acquire(const Wanted& wanted) {
  const std::string id = records.id_of(wanted.tenant, wanted.agent);
  for (;;) {
    SelectRequest request = request_of(wanted);
    if (const auto pinned = records.known(id)) request.pinned = pinned->row.backend;
    co_await backends_.settled(kSettledWithin, std::move(request));
    if (wanted.existing && !records.find(id)) throw no_sandbox(wanted.agent);
    const auto sandbox = records.find_or_make(id, wanted);
    if (sandbox->changing) {  // and may be another one afterwards
      (void)co_await Change::wait_for(sandbox);
      continue;
    }
    if (wanted.existing && !sandbox->known) throw no_sandbox(wanted.agent);
    check_image_stays(*sandbox, wanted);
    const Decision decision = decide(*sandbox, wanted);
    const auto backend = decision.chosen ? backends_.find(*decision.chosen) : nullptr;
    if (!backend || !backend->channel || !backend->settled) {
      records.forget_if_unknown(id);
      throw backend ? is_restarting(*decision.chosen) : refusal_of(decision);
    }
    const auto channel = backend->channel;
    if (sandbox->closing) {
      co_await changes.finish_closing(sandbox, wanted.request_id);
      continue;
    }
    if (sandbox->open_in == channel && sandbox->known) co_return Lease(sandbox, backend, channel);
    if (const auto before = sandbox->busy_before(*channel)) {
      const bool lost = before != sandbox->open_in;
      if (lost || before->identity().settings != channel->identity().settings)
        throw ApiError{
            .code = Code::kBackendUnavailable,
            .message =
                std::string(lost ? "this sandbox is lost in the backend host from before the reload"
                                 : "the settings of this sandbox have changed") +
                ", and calls that began before still run in it: when they have ended it is opened again",
            .retry_after_sec = 5};
      co_return Lease(sandbox, backend, before);
    }
    try {
      check_image_admitted(image_of(*sandbox, wanted), backend->config);
      const Change changing(sandbox);
      co_await changes.open(*sandbox, *backend, wanted, wanted.running ? ISOGATE_OPEN_RUNNING_ONLY : 0);
    } catch (...) {
      records.forget_if_unknown(id);
      throw;
    }
  }
}

bool Sandboxes::still_good(const Lease& lease, const Wanted& wanted) const {
  const Sandbox& sandbox = *lease.sandbox;
  if (records.find(sandbox.row.sandbox_id) != lease.sandbox || sandbox.closing) return false;
  if (sandbox.open_in != lease.channel || !lease.channel->connected()) return false;
  const Decision decision = decide(sandbox, wanted);
  if (!decision.chosen) throw refusal_of(decision);
  return *decision.chosen == sandbox.row.backend;
}

asio::awaitable<void> Sandboxes::end(std::string tenant, std::string agent, bool purge,
                                     std::string request_id) {
  const Wanted wanted{
      .tenant = std::move(tenant), .agent = std::move(agent), .request_id = std::move(request_id)};
  const std::string id = records.id_of(wanted.tenant, wanted.agent);
  auto sandbox = records.find(id);
  if (!sandbox) sandbox = co_await find_unrecorded(id, wanted);
  try {
    const Change changing = co_await Change::wait_for(sandbox);
    if (records.find(id) != sandbox)
      throw ApiError{.code = Code::kSandboxNotFound, .message = "the sandbox was ended by another call"};
    const auto backend = backends_.find(sandbox->row.backend);
    if (!backend) {
      if (purge) throw cannot_purge(sandbox->row);
      co_await changes.end_in_replaced_host(*sandbox, wanted.request_id);
      co_return forget_abandoned(*sandbox);
    }
    SelectRequest request;
    request.pinned = backend->config.name;
    co_await backends_.settled(kSettledWithin, std::move(request));
    co_await changes.wait_for_calls(*sandbox);
    const bool was_lost = sandbox->row.state == SandboxRow::State::kLost;
    {
      const auto place = backend->file_calls.enter(wanted.tenant);
      const uint32_t mode = purge ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
      co_await changes.close(*sandbox, *backend, mode, wanted.request_id);
    }
    if (purge || was_lost || !sandbox->row.was_accepted()) co_await records.remove(*sandbox);
    log::info("sandbox_ended",
              {{"sandbox_id", id}, {"tenant", wanted.tenant}, {"agent_id", wanted.agent}, {"purged", purge}});
  } catch (...) {
    sandbox->left_over = sandbox->left_over || sandbox->closing;
    records.forget_if_unknown(id);
    throw;
  }
}

// What a backend has of an agent that the state store does not know: a lost store must not make it
// unreachable for ever.
asio::awaitable<SandboxPtr> Sandboxes::find_unrecorded(const std::string& id, const Wanted& wanted) {
  std::exception_ptr unsure;  // a backend that could not look may have it
  co_await backends_.settled(kSettledWithin);
  const auto all = backends_.all();
  for (const auto& backend : all) {
    if (auto now = records.find(id)) co_return now;
    if (!backend->serves()) {
      if (backend->may_serve()) unsure = std::make_exception_ptr(is_restarting(backend->config.name));
      continue;
    }
    const auto sandbox = records.make(id, wanted);
    sandbox->row.backend = backend->config.name;
    sandbox->row.state = SandboxRow::State::kOpening;
    bool there = false;
    try {
      const Change changing(sandbox);
      const auto place = backend->file_calls.enter(wanted.tenant);
      const isogate_status found = co_await changes.attach_to_close(*sandbox, *backend, wanted.request_id);
      there = found == ISOGATE_OK;
    } catch (...) {
      unsure = std::current_exception();
    }
    if (there) co_return sandbox;
    records.forget_if_unknown(id);
  }
  if (unsure) std::rethrow_exception(unsure);
  throw no_sandbox(wanted.agent);
}

// Of a backend that is no longer configured.
void Sandboxes::forget_abandoned(Sandbox& sandbox) {
  log::warn("sandbox_forgotten", {{"sandbox_id", sandbox.row.sandbox_id},
                                  {"tenant", sandbox.row.tenant},
                                  {"agent_id", sandbox.row.agent_id},
                                  {"backend", sandbox.row.backend}});
  records.remove_record(sandbox);
  records.forget(sandbox);
}

asio::awaitable<void> Sandboxes::end_expired() {
  std::map<std::pair<std::string, std::string>, size_t> ending;  // by backend and tenant
  for (;;) {
    co_await sleep_for(executor_, seconds(1));
    records.follow_clock();
    const int64_t now = steady_date_ms();
    std::vector<SandboxPtr> expired;  // one that ends at once leaves the register meanwhile
    for (const auto& [id, sandbox] : records.all()) {
      const int64_t expires = sandbox->row.expires_ms;
      if (expires != 0 && expires <= now && sandbox->known) expired.push_back(sandbox);
    }
    for (const auto& sandbox : expired) {
      const auto whose = std::pair(sandbox->row.backend, sandbox->row.tenant);
      if (sandbox->end_again > steady_clock::now() || ending[whose] >= kExpiredAtOnce) continue;
      sandbox->end_again = steady_clock::time_point::max();
      ++ending[whose];
      asio::co_spawn(executor_, end(sandbox->row.tenant, sandbox->row.agent_id, true, "expired"),
                     [&ending, whose, sandbox](const std::exception_ptr& failure) {
                       if (--ending[whose] == 0) ending.erase(whose);
                       sandbox->end_again = steady_clock::now() + kExpiredAgain;
                       if (failure)
                         log::warn("sandbox_not_ended",
                                   {{"sandbox_id", sandbox->row.sandbox_id}, {"reason", "expired"}});
                     });
    }
  }
}

asio::awaitable<void> Sandboxes::set_e2b_record(SandboxPtr sandbox, int64_t expires_ms,
                                                std::string e2b_record) {
  SandboxRow& row = sandbox->row;
  if (!sandbox->known || sandbox->closing) throw no_sandbox(row.agent_id);
  const int64_t expires_before = std::exchange(row.expires_ms, expires_ms);
  const std::string record_before = std::exchange(row.e2b_record, std::move(e2b_record));
  if (const auto recorded = co_await records.put(*sandbox); !recorded) {
    row.expires_ms = expires_before;
    row.e2b_record = record_before;
    throw not_recorded(recorded.error());
  }
}

}  // namespace isogate::front
