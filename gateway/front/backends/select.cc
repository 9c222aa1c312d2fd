#include "gateway/front/backends/select.h"

#include <algorithm>

#include "lib/text.h"

namespace isogate::front {
namespace {

constexpr size_t kMaxForeign = 1000;  // bytes of a plugin's own words in a reason

constexpr uint32_t kRemote[] = {ISOGATE_LOCALITY_DAEMON, ISOGATE_LOCALITY_CLUSTER, ISOGATE_LOCALITY_GATEWAY};

std::string in_quotes(std::string_view name) { return "`" + printable(name, 100) + "`"; }

std::string with(const std::string& text, std::string_view detail) {
  return detail.empty() ? text : text + ": " + printable(detail, kMaxForeign);
}

// What speaks against one candidate, by what would mend it. What it lacks for this call is apart from the
// rest: it is no part of what chooses.
struct Objections {
  std::string reasons, lacks;
  bool availability = false, policy = false, broken = false;

  void add(bool& kind, const std::string& reason) {
    kind = true;
    if (!reasons.empty()) reasons += "; ";
    reasons += reason;
  }
  [[nodiscard]] bool by_policy() const { return !reasons.empty(); }
  [[nodiscard]] std::string all() const {
    return reasons + (reasons.empty() || lacks.empty() ? "" : "; ") + lacks;
  }
};

void check_state(const Candidate& candidate, bool open, Objections& out) {
  if (!candidate.configured) out.add(out.policy, "it is no longer in the configuration and only drains");
  switch (candidate.state) {
    case BackendState::kStarting:
      return out.add(out.availability, with("it is starting", candidate.reason));
    case BackendState::kDown:
      return out.add(out.availability, with("it is down", candidate.reason));
    case BackendState::kFailed:
      return out.add(out.broken, with("it is down", candidate.reason));
    case BackendState::kQuarantined:
      return out.add(out.broken, with("it is quarantined after repeated failures: correct it and reload",
                                      candidate.reason));
    case BackendState::kUp:
      break;
  }
  if (!candidate.hello_seen) return out.add(out.availability, "its plugin is still being loaded");
  if (!candidate.probe) out.add(out.availability, "it has not been probed yet");
  if (candidate.breaker_open && !open)
    out.add(out.availability, with("its circuit breaker is open", candidate.breaker_reason));
}

// True when the probe's isolation, locality and capabilities count.
bool check_verdict(const ipc::Probe& probe, Objections& out) {
  switch (probe.verdict) {
    case ISOGATE_PROBE_AVAILABLE:
    case ISOGATE_PROBE_DEGRADED:
      return true;
    case ISOGATE_PROBE_UNAVAILABLE:
      out.add(out.availability, with("it is unavailable", probe.detail));
      return false;
    default:
      out.add(out.availability,
              with("its probe gives a verdict that is not known, " + std::to_string(probe.verdict),
                   probe.detail));
      return false;
  }
}

std::string degraded(const ipc::Probe& probe) {
  if (probe.verdict != ISOGATE_PROBE_DEGRADED) return {};
  return " (" + with("degraded", probe.detail) + ")";
}

void check_isolation(uint32_t isolation, const Policy& policy, const SelectRequest& request,
                     const std::string& note, Objections& out) {
  if (!known_isolation(isolation))
    return out.add(out.policy, "its isolation level is not known, " + std::to_string(isolation));
  uint32_t asked = request.min_isolation.value_or(ISOGATE_ISOLATION_NONE);
  for (uint32_t floor : {policy.min_isolation, asked})
    if (!known_isolation(floor))
      return out.add(out.policy, "the isolation asked for is not known, " + std::to_string(floor));
  uint32_t floor = std::max(policy.min_isolation, asked);
  std::string level(isolation_name(isolation));
  if (isolation < floor)
    out.add(
        out.policy,
        "its isolation is " + level + note + ", below the " + std::string(isolation_name(floor)) +
            (asked > policy.min_isolation ? " that the request asks for" : " that min_isolation asks for"));
  if (isolation == ISOGATE_ISOLATION_NONE && !policy.allow_unisolated)
    out.add(out.policy,
            "its isolation is none" + note + ", which only allow_unisolated: true (developer mode) permits");
}

void check_locality(uint32_t locality, const Policy& policy, Objections& out) {
  if (!known_locality(locality))
    return out.add(out.policy, "its locality is not known, " + std::to_string(locality));
  if (policy.require_remote && std::ranges::find(kRemote, locality) == std::end(kRemote))
    out.add(out.policy, "its locality is " + std::string(locality_name(locality)) +
                            ", and require_remote admits daemon, cluster and gateway only");
}

uint64_t had_by_sampling(uint64_t capabilities) {
  uint64_t had = 0;
  for (const LimitKind& kind : kLimitKinds)
    if (capabilities & kind.sampled) had |= kind.exec;
  return had;
}

void check_capabilities(const Standing& wanted, const ipc::Probe& probe, uint64_t needed, Objections& out) {
  const uint64_t sampled = had_by_sampling(probe.capabilities);
  uint64_t missing = needed & ~(probe.capabilities | (wanted.exec_sampled ? sampled : 0));
  if (!missing) return;
  std::string names = join(capability_names(missing), ", ");
  uint64_t known = 0;
  for (const auto& [bit, name] : capability_table()) known |= bit;
  if (missing & ~known) names += names.empty() ? "one that is not known" : ", one that is not known";
  out.lacks = "it lacks " + names + degraded(probe);
  if (missing & sampled)
    out.lacks += " (it can sample what one exec uses: write limits.exec: sampled for this backend)";
}

// `denies`: as it is configured, its programs have no way out. No capability claims a proxy.
void check_egress(uint32_t egress, bool denies, Objections& out) {
  switch (egress) {
    case ISOGATE_EGRESS_UNSET:
      return;
    case ISOGATE_EGRESS_DENY:
      if (!denies)
        out.add(out.policy,
                "it cannot keep its programs off the network: configure it so that it can, or remove "
                "egress: deny");
      return;
    case ISOGATE_EGRESS_PROXY:
      return out.add(out.policy, std::string("it has no egress proxy: write egress: ") +
                                     (denies ? "deny" : "allow") + ", or choose another backend");
    case ISOGATE_EGRESS_ALLOW:
      if (denies)
        out.add(out.policy,
                "its programs have no way out to any network: configure it so that they do, choose another "
                "backend, or remove egress: allow");
      return;
    default:
      return out.add(out.policy, "its egress is not known, " + std::to_string(egress));
  }
}

const char* how_to_limit_disks(uint64_t capabilities) {
  if ((capabilities & ISOGATE_CAP_SANDBOX_DISK_ADVISORY) == 0) return "";
  return " (it only counts: for a limit that programs meet, too, where its workspaces are directories of "
         "this "
         "host, mount their file system with project quotas, or write workspace_fs: loop or tmpfs in its "
         "config)";
}

// A sandbox that would be refused when it is opened is not worth a try.
void check_wanted(const Standing& wanted, const ipc::Probe& probe, Objections& out) {
  std::string names;
  bool disk = false;
  for (const LimitKind& kind : kLimitKinds) {
    if (wanted.limits.get(kind.id) == 0 || wanted.best_effort || (probe.capabilities & kind.sandbox) != 0)
      continue;
    names += (names.empty() ? "" : ", ") + std::string(kind.setting);
    disk = disk || kind.id == ISOGATE_LIMIT_DISK_BYTES;
  }
  if (!names.empty())
    out.add(out.policy, "it cannot limit " + names + ": remove it or write limits.mode: best_effort" +
                            (disk ? how_to_limit_disks(probe.capabilities) : ""));
  check_egress(wanted.egress, (probe.capabilities & ISOGATE_CAP_EGRESS_DENY) != 0, out);
}

// Never, whatever becomes of it, what the request asks for above the policy's own floor.
bool never_isolates_so(const Candidate& candidate, const Policy& policy, const SelectRequest& request) {
  return request.min_isolation && known_isolation(*request.min_isolation) &&
         *request.min_isolation > policy.min_isolation && candidate.best &&
         *candidate.best < *request.min_isolation;
}

struct Examined {
  Objections objections;
  uint32_t isolation = ISOGATE_ISOLATION_NONE;
};

Examined examine(const Candidate& candidate, const Policy& policy, const SelectRequest& request) {
  Examined result;
  const bool open = request.open && request.pinned == candidate.name && candidate.good;
  check_state(candidate, open, result.objections);
  const std::optional<ipc::Probe>& latest = open ? candidate.good : candidate.probe;
  if (!latest || !check_verdict(*latest, result.objections)) {
    if (never_isolates_so(candidate, policy, request))
      result.objections.add(result.objections.policy,
                            "its isolation is at best " + std::string(isolation_name(*candidate.best)) +
                                ", below the " + std::string(isolation_name(*request.min_isolation)) +
                                " that the request asks for");
    return result;
  }
  const ipc::Probe& probe = *latest;
  result.isolation = probe.isolation;
  std::string note = degraded(probe);
  bool lives_here = request.pinned == candidate.name && request.pinned_isolation;
  if (lives_here &&
      (*request.pinned_isolation < probe.isolation || !known_isolation(*request.pinned_isolation))) {
    result.isolation = *request.pinned_isolation;
    note = " in this sandbox, which was opened so";
  }
  check_locality(probe.locality, policy, result.objections);
  check_isolation(result.isolation, policy, request, note, result.objections);
  check_wanted(candidate.wanted, probe, result.objections);
  check_capabilities(candidate.wanted, probe, request.capabilities, result.objections);
  return result;
}

// Out of order for the moment, and nothing else: what it would isolate, as last seen or at the most.
std::optional<uint32_t> passing_outage_of(const Candidate& candidate, const Examined& examined) {
  const Objections& objections = examined.objections;
  if (objections.policy || !(objections.availability || objections.broken)) return std::nullopt;
  // None: it was never here.
  if (candidate.state == BackendState::kFailed && !candidate.good) return candidate.seen;
  const bool probed_away = candidate.state == BackendState::kUp && candidate.probe &&
                           candidate.probe->verdict == ISOGATE_PROBE_UNAVAILABLE && !candidate.good;
  if (probed_away) return candidate.seen;
  const auto& seen = candidate.good ? candidate.good : candidate.probe;
  const bool known = seen && seen->verdict != ISOGATE_PROBE_UNAVAILABLE && known_isolation(seen->isolation);
  return known ? seen->isolation : ISOGATE_ISOLATION_VM;
}

Refusal refusal_of(const Objections& objections) {
  if (objections.policy || objections.broken) return Refusal::kPolicy;
  return objections.lacks.empty() ? Refusal::kUnavailable : Refusal::kUnsupported;
}

Decision refuse_all(const std::vector<Candidate>& candidates, Refusal refusal, std::string message) {
  Decision decision;
  decision.refusal = refusal;
  decision.message = std::move(message);
  for (const Candidate& candidate : candidates)
    decision.verdicts.push_back({candidate.name, false, decision.message});
  return decision;
}

bool configured(const std::vector<Candidate>& candidates, std::string_view name) {
  return std::ranges::any_of(candidates, [&](const Candidate& c) { return c.name == name && c.configured; });
}

Decision no_such_backend(const std::vector<Candidate>& candidates, std::string_view name) {
  std::string names;
  for (const Candidate& candidate : candidates)
    if (candidate.configured) names += (names.empty() ? "" : ", ") + in_quotes(candidate.name);
  return refuse_all(candidates, Refusal::kNoSuchBackend,
                    "no backend is named " + in_quotes(name) +
                        (names.empty() ? "; none is configured" : "; configured are " + names));
}

// Refusals that need no look at any probe.
std::optional<Decision> refuse_early(const std::vector<Candidate>& candidates, const SelectRequest& request) {
  if (request.backend && request.pinned && *request.backend != *request.pinned)
    return refuse_all(candidates, Refusal::kElsewhere,
                      "the workspace of this agent is on backend " + in_quotes(*request.pinned) +
                          ", the request names " + in_quotes(*request.backend) +
                          "; leave `backend` out, or first remove the sandbox and its files with DELETE "
                          "/sandboxes/{agent_id}?purge=true");
  if (request.pinned) {
    if (std::ranges::any_of(candidates, [&](const Candidate& c) { return c.name == *request.pinned; }))
      return {};
    return refuse_all(candidates, Refusal::kPolicy,
                      "the workspace of this agent is on backend " + in_quotes(*request.pinned) +
                          ", which is no longer configured; configure it again, or delete the sandbox, which "
                          "leaves its files there: another backend that keeps workspaces in the same "
                          "directory then refuses this agent");
  }
  if (request.backend && !configured(candidates, *request.backend))
    return no_such_backend(candidates, *request.backend);
  if (candidates.empty())
    return refuse_all(candidates, Refusal::kPolicy, "no backend is configured; add one under `backends`");
  return {};
}

std::string refusal_message(const Decision& decision, const SelectRequest& request) {
  const std::optional<std::string>& only = request.pinned ? request.pinned : request.backend;
  if (only) {
    for (const CandidateVerdict& verdict : decision.verdicts)
      if (verdict.name == *only)
        return (request.pinned ? "backend " + in_quotes(*only) + ", which holds the workspace of this agent, "
                               : "backend " + in_quotes(*only) + " ") +
               "cannot be used: " + verdict.reason;
  }
  std::string message = "no backend can be used";
  std::string_view before = ": ";
  for (const CandidateVerdict& verdict : decision.verdicts) {
    message += std::string(before) + in_quotes(verdict.name) + ", " + verdict.reason;
    before = " | ";
  }
  return message;
}

// The most hopeful of what excludes the candidates: what would work again by itself comes first.
Refusal more_hopeful(Refusal a, Refusal b) { return a == Refusal::kNone ? b : std::min(a, b); }

}  // namespace

Standing standing_of(const BackendConfig& config) {
  return {config.sandbox_limits, config.limits_best_effort, config.exec_limits_sampled, config.egress};
}

Policy policy_of(const Config& config) {
  return {config.require_remote, config.min_isolation, config.allow_unisolated, config.fallback_allowed};
}

Decision select(const std::vector<Candidate>& candidates, const Policy& policy,
                const SelectRequest& request) {
  if (std::optional<Decision> early = refuse_early(candidates, request)) return *std::move(early);
  Decision decision;
  const std::optional<std::string>& only = request.pinned ? request.pinned : request.backend;
  Refusal refusal = Refusal::kNone;
  const Candidate* awaited = nullptr;  // the strongest that is out of order for the moment
  uint32_t least = ISOGATE_ISOLATION_NONE;
  const Candidate* unable = nullptr;  // the policy's choice, which lacks what the call needs
  bool never = true;                  // so far none could ever isolate as the request asks for
  for (const Candidate& candidate : candidates) {
    if (only && candidate.name != *only) {
      decision.verdicts.push_back(
          {candidate.name, false,
           (request.pinned ? "the workspace of this agent is on backend " : "the request names backend ") +
               in_quotes(*only)});
      continue;
    }
    Examined examined = examine(candidate, policy, request);
    Objections& objections = examined.objections;
    never = never && never_isolates_so(candidate, policy, request);
    if (!objections.by_policy() && awaited != nullptr && examined.isolation < least)
      objections.add(objections.availability,
                     "its isolation is " + std::string(isolation_name(examined.isolation)) + ", less than " +
                         in_quotes(awaited->name) +
                         " may give, which comes first and is out of order for the moment (fallback: allowed "
                         "would accept this)");
    const bool passed = decision.chosen || unable != nullptr;
    const auto outage = passing_outage_of(candidate, examined);
    if (outage && *outage > least && !passed && !policy.fallback_allowed) {
      awaited = &candidate;
      least = *outage;
    }
    if (objections.by_policy() || !objections.lacks.empty()) {
      if (!passed && !objections.by_policy()) unable = &candidate;
      refusal = more_hopeful(refusal, refusal_of(objections));
      decision.verdicts.push_back({candidate.name, false, objections.all()});
    } else if (unable != nullptr) {
      decision.verdicts.push_back(
          {candidate.name, false,
           "it comes behind " + in_quotes(unable->name) + ", which policy chooses and which cannot do this"});
    } else if (decision.chosen) {
      decision.verdicts.push_back(
          {candidate.name, true, "eligible; " + in_quotes(*decision.chosen) + " comes first"});
    } else {
      decision.chosen = candidate.name;
      decision.isolation = examined.isolation;
      decision.verdicts.push_back({candidate.name, true, "chosen" + degraded(*candidate.probe)});
    }
  }
  if (decision.chosen) return decision;
  decision.refusal = unable == nullptr && !never ? refusal : Refusal::kUnsupported;
  decision.message = refusal_message(decision, request);
  return decision;
}

}  // namespace isogate::front
