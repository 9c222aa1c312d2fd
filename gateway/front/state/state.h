// The state that survives the front: the backend of each sandbox, and the journal of execs.
// SQLite in write-ahead mode, one writer thread, one transaction for all that is pending.
//
// Any thread may call; only open(), load_sandboxes(), close_open_execs() and flush() block. What is
// asynchronous is applied in the order of the calls. Callbacks run on the writer thread, must not
// throw and must not call a blocking function here.
// Failures are never silent: a sandbox change calls back with its error, execs are kept and tried again
// every second, and on_health reports when the database cannot be written, how many execs were given up
// meanwhile, and when it can be written again.
// A database that is damaged, foreign or of another schema is an error of open(), never replaced. Nor is the
// file ever shared: a second process is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/clock.h"
#include "lib/error.h"

namespace isogate::front {

struct SandboxRow {
  // kOpening: recorded before its backend is asked to open it; nothing of it has been accepted. kActive: it
  // was opened, measured and accepted. kLost: its workspace is gone. kEnding: a purge of it began.
  enum class State { kOpening, kActive, kLost, kEnding };
  std::string sandbox_id, tenant, agent_id, backend;
  std::string handle;  // what open() answered, to re-attach
  uint32_t uid = UINT32_MAX;
  uint32_t isolation = 0;
  int64_t created_ms = 0, last_used_ms = 0;  // since 1970, UTC; as all _ms but durations
  State state = State::kActive;
  // Its disk limit, as its backend reported at its last open. 0: no limit.
  std::optional<uint64_t> disk_limit_bytes;
  std::string image;       // that was asked for; empty: its backend's own
  int64_t expires_ms = 0;  // when it is ended and purged, as of steady_date_ms(); 0: never
  std::string e2b_record;  // the E2B listener's record of it, JSON; empty: not created there

  bool operator==(const SandboxRow&) const = default;
  [[nodiscard]] bool was_accepted() const { return state == State::kActive || state == State::kLost; }
};

// "opening", "active", "lost", "ending": in the database and in answers.
std::string_view state_name(SandboxRow::State state);

// How an exec ended. kNotStarted is only in the journal and the metrics: its caller gets an error.
enum class Outcome { kExited, kSignaled, kTimedOut, kKilled, kOomKilled, kUnknown, kNotStarted };

// "exited", "signaled", "timed_out", "killed", "oom_killed", "unknown", "not_started": in the database, in
// answers, metrics and the log.
std::string_view outcome_name(Outcome outcome);

struct ExecOutcome {
  int64_t ended_ms = 0;
  Outcome outcome = Outcome::kUnknown;
  std::optional<int32_t> exit_code;  // none: unknown
  int32_t signal = 0;
  std::string reason;  // a backend's words, too: kept redacted
  uint64_t stdout_bytes = 0, stderr_bytes = 0;
  double duration_ms = 0;  // on disk without its fraction
};

// Of a long-lived exec; recorded if its backend keeps it while the gateway is away (isogate/kept_exec.h).
struct KeptTerms {
  int64_t deadline_ms = 0;  // as of steady_date_ms()
  bool stdin_open = false;  // after the bytes that the request has
  bool pty = false;
  uint64_t kept_bytes = 0;  // of each stream, in memory
};

struct ExecRow {
  std::string exec_id, sandbox_id, tenant, backend, request_id;
  std::string command;  // short and printable, redacted; never env or stdin
  int64_t started_ms = 0;
  std::optional<ExecOutcome> ended;    // none: it is open
  std::optional<KeptTerms> kept = {};  // while it is open
};

class State {
 public:
  using Done = std::function<void(Result<void>)>;
  using OnHealth = std::function<void(const std::optional<Error>&)>;  // nullopt: it works again

  struct Options {
    // Beyond these the tenants that have the most lose what ended first; pruned now and then.
    size_t max_closed_execs = 10000;
    int64_t max_closed_age_ms = 7ll * 24 * 3600 * 1000;
    size_t max_pending_execs = 100000;  // kept in memory meanwhile; what is dropped beyond is reported
    bool sync_sandboxes = true;         // sandbox changes are synced to disk: a pin outlives a loss of power
    OnHealth on_health;
    std::function<int64_t()> clock_ahead_ms = wall_clock_ahead_ms;  // called by open() and follow_clock()
  };

  // `path` is absolute, in a directory of mode 0700 that is made when absent; the file is 0600.
  // Wider modes and foreign owners are refused.
  static Result<std::unique_ptr<State>> open(const std::string& path, Options options);
  static Result<std::unique_ptr<State>> open(const std::string& path) { return open(path, Options()); }
  ~State();  // flushes

  Result<std::vector<SandboxRow>> load_sandboxes();

  // The execs that were open when the last process ended. An exec that is not kept is closed with
  // outcome `unknown` and this reason.
  Result<std::vector<ExecRow>> close_open_execs(const std::string& reason, int64_t now_ms);

  // Inserts or replaces. `done` (may be empty) runs after the commit, or with the reason why nothing was
  // changed: not tried again.
  void put_sandbox(SandboxRow row, Done done);
  void remove_sandbox(std::string sandbox_id, Done done);
  void touch_sandbox(std::string sandbox_id, int64_t last_used_ms);  // cheap, coalesced

  // Dates of a row as of steady_date_ms() are times of day on disk, for the next process. When these two have
  // moved apart by over 2 s, this puts the dates on disk right: call it every second.
  void follow_clock();

  // Committed together within some 20 ms; an exec that is opened and closed in that time is one
  // insert. A crash of this process before that loses it. Closing an exec that was never opened
  // is ignored.
  void exec_opened(ExecRow row);
  void exec_closed(const std::string& exec_id, ExecOutcome outcome);

  // Sees all changes before it, also while they cannot be written. Waits with execs for a shared commit.
  void find_exec(std::string exec_id, std::function<void(Result<std::optional<ExecRow>>)> found);

  // All changes before it are on disk, or why not.
  Result<void> flush();

  // Why the database cannot be written at the moment: then open no new sandbox.
  [[nodiscard]] std::optional<Error> last_error() const;

 private:
  class Writer;
  explicit State(std::unique_ptr<Writer> writer);
  std::unique_ptr<Writer> writer_;
};

}  // namespace isogate::front
