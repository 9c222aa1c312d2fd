#include <nlohmann/json.hpp>

#include "plugins/docker/backend.h"
#include "plugins/docker/requirements.h"

namespace isogate::docker {
namespace {

constexpr std::chrono::milliseconds kProbe{5'000}, kPing{3'000};
constexpr std::chrono::minutes kStands{10};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

std::string limits_missing(const EngineInfo& info, const Config& config) {
  // podman says that it can there, and leaves them out in silence.
  const bool none = info.rootless && (info.cgroup_version == "1" || info.cgroup_driver == "none");
  std::string missing;
  const auto check = [&](const char* name, bool wanted, bool can) {
    if (wanted && (none || !can)) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  check("memory_mb", config.memory_mb != 0, info.memory_limit);
  check("cpus", config.cpus != 0, info.cpu_quota);
  check("pids", config.pids != 0, info.pids_limit);
  return missing;
}

// Why this Engine cannot be used; empty: it can.
std::string obstacle(const EngineInfo& info, const Config& config, bool as_root) {
  if (info.rootless && as_root && config.workspace != Place::kVolume)
    return "this Engine is rootless and the gateway is root's: inside, no user but the Engine's own can "
           "write to "
           "a directory of this host; start the gateway as that user, or set `workspace: volume`";
  if (!info.podman && info.processors > 0 && config.cpus > static_cast<double>(info.processors))
    return "`cpus` is above the " + std::to_string(info.processors) +
           " processors of this Engine's machine, and it makes no such container: lower it, or set it to 0";
  const std::string missing = limits_missing(info, config);
  if (missing.empty()) return {};
  if (info.rootless && info.cgroup_version == "1")
    return "this Engine is rootless on cgroups v1, where it cannot limit " + missing +
           ": use cgroups v2 or an Engine of root, or set these to 0";
  return "this Engine cannot limit " + missing + ": enable the cgroup controllers, or set these to 0";
}

}  // namespace

std::string Backend::detail_of(const EngineInfo& info, Services& services) const {
  std::string detail = std::string(info.rootless ? "rootless " : "") + (info.podman ? "podman " : "Engine ") +
                       info.version + " (API " + info.api_version + ") at " +
                       services.engine.address().text() + "; a container" + (as_root_ ? " and a uid" : "") +
                       " for each sandbox; " + services.choices();
  if (pool_) detail += "; " + pool_->text();
  auto relaxed = relaxations_of(config_);
  if (!as_root_) relaxed.push_back("all sandboxes share uid " + std::to_string(::geteuid()));
  if (!relaxed.empty()) detail += "; relaxed: " + joined(relaxed);
  return detail;
}

std::string Backend::examine(const sdk::Call& call, std::string& detail) {
  Services& use = services();
  const EngineInfo info = use.engine.info(Budget(call, kProbe));
  use.learn(info);
  detail = detail_of(info, use);
  const std::string why = obstacle(info, config_, as_root_);
  return why.empty() ? why_not(use, info, Budget(call, kProbe)) : why;
}

// An Engine that makes many containers answers a ping, and else nobody for a while: it is still the one that
// was examined.
bool Backend::is_busy(const sdk::Call& call, std::string& detail) {
  {
    const std::lock_guard lock(mutex_);
    if (examined_.text.empty() || std::chrono::steady_clock::now() > examined_.at + kStands) return false;
    detail = examined_.text;
  }
  try {
    services().engine.ping(Budget(call, kPing));
    return true;
  } catch (const sdk::Error&) {
    return false;
  }
}

void Backend::probe(const sdk::Call& call, isogate_probe& out) {
  out.isolation = ISOGATE_ISOLATION_CONTAINER;
  out.locality = ISOGATE_LOCALITY_DAEMON;
  out.capabilities =
      ISOGATE_CAP_PTY | ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_EVIDENCE;
  if (!config_.network || config_.internal) out.capabilities |= ISOGATE_CAP_EGRESS_DENY;
  if (as_root_) out.capabilities |= ISOGATE_CAP_UID_PER_SANDBOX;
  out.verdict = ISOGATE_PROBE_UNAVAILABLE;
  std::string detail;
  try {
    const std::string why = examine(call, detail);
    if (why.empty()) out.verdict = ISOGATE_PROBE_AVAILABLE;
    const std::lock_guard lock(mutex_);
    examined_ = {why.empty() ? detail : "", std::chrono::steady_clock::now()};
    if (!why.empty()) detail = why;
  } catch (const EngineError& error) {
    const bool unanswered = error.status() == ISOGATE_UNAVAILABLE && error.http_status() == 0;
    if (unanswered && is_busy(call, detail))
      out.verdict = ISOGATE_PROBE_AVAILABLE;
    else
      detail = error.what();
  } catch (const sdk::Error& error) {
    detail = error.what();
  }
  sdk::set_text(out.detail, detail);
}

}  // namespace isogate::docker
