#include "plugins/k8s/backend.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/text.h"
#include "plugins/common/or_throw.h"
#include "plugins/common/plugin_open.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/lease.h"
#include "plugins/k8s/record.h"

namespace isogate::k8s {
namespace {

constexpr std::chrono::milliseconds kProbe{15'000};  // the gateway waits 20 s

bool runs_here(Services& services, const Json& lease, const std::set<std::string>& pods) {
  try {
    const Record record = read_record(lease);
    const auto& users = record.users;
    return pods.contains(record.pod_uid) &&
           std::find(users.begin(), users.end(), services.holder) != users.end();
  } catch (const sdk::Error& error) {
    services.warn(metadata_text(lease, "name") + ": " + error.what());
    return false;
  }
}

bool is_claimed(const Json& lease) {
  try {
    return read_record(lease).kind == Provision::kSandboxClaim;
  } catch (const sdk::Error&) {
    return false;
  }
}

// `kind`: of what made them.
void add_running(Services& services, Provision kind, const sdk::Call& call, std::set<std::string>& uids) {
  const Json pods =
      services.api.list(services.pod(), {pod_selector_of(kind, services.any.owner), "", 500}, call);
  for (const Json& each : pods.at("items"))
    if (const PodState state = state_of(each); state.exists && !state.ended) uids.insert(state.uid);
}

}  // namespace

Backend::Backend(sdk::Host host, std::string_view config_json)
    : host_(host), config_(parse_config(config_json)) {
  check_shared(config_, parts_of_any(host_).shared);
  for (const std::string& relaxed : relaxations_of(config_))
    host_.log(ISOGATE_LOG_WARN, "relaxation: " + relaxed);
}

Services& Backend::services() {
  const std::lock_guard lock(mutex_);
  if (services_) return *services_;
  ClusterAccess access = load_access(config_.access);
  for (const std::string& relaxed : access.relaxations)
    host_.log(ISOGATE_LOG_WARN, "relaxation: " + access.source + ": " + relaxed);
  services_ = std::make_unique<Services>(host_, config_, std::move(access));
  // Also if none is wanted: an earlier gateway may have been killed.
  if ((host_.abi().flags & ISOGATE_HOST_PROBE_ONLY) == 0) pool_ = std::make_unique<Pool>(*services_);
  return *services_;
}

std::string Backend::detail_of(Services& services) const {
  std::string detail = requirements_.text() + " at " + services.api.access().text() + ", namespace `" +
                       services.name_space + "`; a " + name_of(config_.provision) + " for each sandbox";
  const std::string relaxed = join(relaxations_of(config_), "; ");
  if (!relaxed.empty()) detail += "; relaxed: " + relaxed;
  if (pool_ && config_.warm_pool != 0) detail += "; " + pool_->text();
  return detail;
}

void Backend::probe(const sdk::Call& call, isogate_probe& out) {
  out.isolation = config_.vm ? ISOGATE_ISOLATION_VM : ISOGATE_ISOLATION_CONTAINER;
  out.locality = ISOGATE_LOCALITY_CLUSTER;
  out.capabilities = kAlways | sandbox_limits(kLimited);
  if (config_.provision != Provision::kSandboxClaim) out.capabilities |= ISOGATE_CAP_IMAGE;
  if (config_.transport != RunnerTransport::kExec)  // there each would keep one of few connections
    out.capabilities |= ISOGATE_CAP_WATCH | ISOGATE_CAP_PORTS | ISOGATE_CAP_KEPT_EXECS;
  if (config_.workspace == Place::kClaim)
    out.capabilities |= ISOGATE_CAP_PERSISTENT;
  else
    out.capabilities &= ~uint64_t{ISOGATE_CAP_SANDBOX_LIMIT_DISK};  // it is part of the node's own disk
  if (!config_.open_network && config_.egress_to.empty() && !config_.allow_unenforced_network)
    out.capabilities |= ISOGATE_CAP_EGRESS_DENY;
  out.verdict = ISOGATE_PROBE_UNAVAILABLE;
  std::string detail;
  try {
    Services& use = services();
    detail = requirements_.why_not(use, Budget(call, kProbe));
    if (detail.empty()) {
      detail = detail_of(use);
      out.verdict = ISOGATE_PROBE_AVAILABLE;
    }
    use.serves = out.verdict == ISOGATE_PROBE_AVAILABLE;
  } catch (const sdk::Error& error) {
    detail = error.what();
  }
  sdk::set_text(out.detail, detail);
}

namespace {

void announce(Services& services, const sdk::Call& call) try {
  services.presence.begin(call);
} catch (const NetError&) {
  rethrow_as_ours(services, std::current_exception());
}

constexpr uint32_t kOpenFlags = ISOGATE_OPEN_ATTACH_ONLY | ISOGATE_OPEN_LIMITS_BEST_EFFORT |
                                ISOGATE_OPEN_KNOWN | ISOGATE_OPEN_RUNNING_ONLY;

Parts parts_of(const Services& services, const isogate_sandbox_spec& spec) {
  Parts parts = services.any;
  parts.owner.sandbox_id = sdk::view(spec.sandbox_id);
  parts.tenant = sdk::view(spec.tenant);
  parts.agent_id = sdk::view(spec.agent_id);
  parts.image = or_throw(take_image(spec, "k8s"));
  return parts;
}

}  // namespace

Limits Backend::check_asked(const isogate_sandbox_spec& spec) const {
  const auto refuse = [](const std::string& why) { throw sdk::Error(ISOGATE_UNSUPPORTED, why); };
  if (spec.egress == ISOGATE_EGRESS_PROXY) refuse("backend `k8s` has no egress proxy: egress: deny or allow");
  const bool way_out = config_.open_network || !config_.egress_to.empty();
  if (spec.egress == ISOGATE_EGRESS_DENY && (way_out || config_.allow_unenforced_network))
    refuse(
        "egress is to be denied, and the configuration of `k8s` has a way out: remove network: open, "
        "egress_to and allow_unenforced_network");
  if (spec.egress == ISOGATE_EGRESS_ALLOW && !way_out)
    refuse("egress is to be allowed, and this backend denies it: set network: open, or egress_to");
  return or_throw(take_limits(spec, "k8s", kLimited));
}

std::unique_ptr<sdk::Sandbox> Backend::open(const sdk::Call& call, const isogate_sandbox_spec& spec,
                                            isogate_sandbox_info& info) {
  or_throw(check_known(spec, kOpenFlags));
  const auto flagged = [&spec](uint32_t flag) { return (spec.flags & flag) != 0; };
  Services& use = services();
  const Parts parts = parts_of(use, spec);
  OpenWish wish{flagged(ISOGATE_OPEN_ATTACH_ONLY), flagged(ISOGATE_OPEN_KNOWN),
                flagged(ISOGATE_OPEN_RUNNING_ONLY), std::string(sdk::view(spec.handle)),
                parts.image.empty() ? pool_.get() : nullptr};
  Limits asked;
  try {
    asked = check_asked(spec);
  } catch (const sdk::Error& error) {
    if (!wish.attach_only && !wish.unchanged) throw;
    wish.refusal = error;
  }
  if (!wish.attach_only) announce(use, call);
  auto pod = std::make_unique<SandboxPod>(use, parts, limits_of(config_, asked));
  const SandboxPod::Opened opened = pod->open(wish, call);
  const bool is_known = wish.known || wish.unchanged;
  info.flags = ISOGATE_SANDBOX_RUNS;
  if (opened.fresh) info.flags |= ISOGATE_SANDBOX_FRESH;
  // A pod of another gateway was measured before its first command, and the record has that.
  if (opened.used_before && (is_known || opened.fresh)) info.flags |= ISOGATE_SANDBOX_ATTACHED;
  info.isolation = config_.vm ? ISOGATE_ISOLATION_VM : ISOGATE_ISOLATION_CONTAINER;
  info.uid = static_cast<uint32_t>(config_.uid);
  sdk::set_text(info.handle, pod->handle());
  return std::make_unique<Sandbox>(config_, std::move(pod));
}

// This gateway re-attaches the pods that it had open and that still run.
void Backend::enumerate(const sdk::Call& call, const sdk::RecordSink& sink) {
  Services& use = services();
  const auto leases = sandbox_leases(use, false, call);
  std::set<std::string> there;
  add_running(use, Provision::kPod, call, there);
  if (std::any_of(leases.begin(), leases.end(), is_claimed))
    add_running(use, Provision::kSandboxClaim, call, there);
  for (const Json& each : leases)
    sink.add(metadata_text(each, "name"), uid_of(each),
             runs_here(use, each, there) ? ISOGATE_SANDBOX_RUNS : 0);
}

}  // namespace isogate::k8s
