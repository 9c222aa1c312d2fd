// Selection: (operator's order, state and probe of each backend, policy, request) → one backend, or
// every reason why not. A pure function; chosen once, used everywhere. Any thread.
//
// A named backend is used, or it is an error. A sandbox stays on its backend: if that is lost, it
// is an error, not a move to an empty directory. Otherwise the first eligible in order wins. An
// unknown value (a level, a locality, a missing probe) is never eligible.
//
// A temporary failure never lowers isolation: after a backend that is only temporarily unavailable (it
// starts, it crashed, its breaker is open, its probe fails and did not before) none with less isolation is
// chosen, unless the operator wrote `fallback: allowed`. What a request needs (`user`, `cgroup`) is no part
// of the choice, whatever the operator wrote: the backend that would serve a request without needs serves
// this one, or refuses it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/config/config.h"
#include "gateway/ipc/messages.h"
#include "lib/capabilities.h"

namespace isogate::front {

enum class BackendState {
  kStarting,
  kUp,
  kDown,         // for a while: it is restarted
  kFailed,       // not installed, refused, a bad configuration: until an operator corrects it
  kQuarantined,  // the same, after too many crashes
};

// What the operator wrote for every sandbox of a backend.
struct Standing {
  Limits limits;
  bool best_effort = false;   // limits that cannot be enforced are left out
  bool exec_sampled = false;  // a sampled limit of one exec is as good as an enforced one
  uint32_t egress = ISOGATE_EGRESS_UNSET;
};
Standing standing_of(const BackendConfig& config);

struct Candidate {
  std::string name;
  Standing wanted;
  bool configured = true;        // false: taken out of the configuration, it only drains
  bool hello_seen = false;       // its plugin is loaded and created
  std::optional<uint32_t> best;  // the isolation that its plugin's descriptor promises; none: not known
  BackendState state = BackendState::kStarting;
  std::string reason;               // why it is not up, in the supervisor's words
  std::optional<ipc::Probe> probe;  // the latest; none: not probed since it came up
  std::optional<ipc::Probe> good;   // the latest that was not `unavailable`, with these settings
  std::optional<uint32_t> seen;     // the isolation of the latest that was not, with any settings
  bool breaker_open = false;        // Breaker::blocked()
  std::string breaker_reason;       // Breaker::reason()
};

struct Policy {
  bool require_remote = false;  // localities daemon, cluster and gateway only
  uint32_t min_isolation = ISOGATE_ISOLATION_NONE;
  bool allow_unisolated = false;  // isolation `none` at all
  bool fallback_allowed = false;  // fallback: allowed, for outages
};
Policy policy_of(const Config& config);

struct SelectRequest {
  std::string tenant;                        // whose breaker counts
  std::optional<std::string> backend;        // named in the request
  std::optional<uint32_t> min_isolation;     // the higher of this and the policy's is the minimum
  uint64_t capabilities = 0;                 // ISOGATE_CAP_* the call cannot do without
  std::optional<std::string> pinned;         // the backend that holds this sandbox's workspace
  std::optional<uint32_t> pinned_isolation;  // what that sandbox was opened with
  bool open = false;  // it is open there now: a failed probe or an open breaker does not stop its calls
};

enum class Refusal {
  kNone,           // a backend was chosen
  kNoSuchBackend,  // the named one is not configured
  kElsewhere,      // the named one is not the one that holds the workspace
  kUnavailable,    // at least one is eligible once it recovers by itself: worth a retry
  kUnsupported,    // the one that policy chooses lacks a capability, or none has the isolation asked for
  kPolicy,         // the policy, the request's minimum, or errors that an operator must correct exclude all
};

struct CandidateVerdict {
  std::string name;
  bool eligible = false;
  std::string reason;  // for a person; when not eligible every one, "; " between
};

struct Decision {
  std::optional<std::string> chosen;
  uint32_t isolation = ISOGATE_ISOLATION_NONE;  // of the chosen: probed, at most pinned_isolation
  Refusal refusal = Refusal::kNone;
  std::string message;                     // when nothing was chosen: all of it, for the error object
  std::vector<CandidateVerdict> verdicts;  // one per candidate, in order
};

Decision select(const std::vector<Candidate>& candidates, const Policy& policy, const SelectRequest& request);

}  // namespace isogate::front
