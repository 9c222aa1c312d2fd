#include "gateway/front/state/state_db.h"

#include <Poco/Data/SQLite/Connector.h>
#include <Poco/Nullable.h>

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <optional>

#include "gateway/front/state/disk_reserve.h"
#include "gateway/front/state/state_file.h"
#include "gateway/front/state/state_sql.h"

namespace isogate::front {
namespace {

using namespace sql;
using Strings = std::vector<std::string>;
using Numbers = std::vector<Int64>;
using Optionals = std::vector<Poco::Nullable<Int64>>;

constexpr uint32_t kBatchesATopUp = 64;
constexpr Int64 kStdinOpen = 1, kPty = 2;  // flags of kept_execs

struct StateName {
  SandboxRow::State state;
  std::string_view name;
};
constexpr StateName kStates[] = {{SandboxRow::State::kOpening, "opening"},
                                 {SandboxRow::State::kActive, "active"},
                                 {SandboxRow::State::kLost, "lost"},
                                 {SandboxRow::State::kEnding, "ending"}};

// A name that is not known is never a sandbox that was accepted.
SandboxRow::State state_of(std::string_view name) {
  for (const StateName& row : kStates)
    if (row.name == name) return row.state;
  return SandboxRow::State::kOpening;
}

// In the order of enum Outcome.
constexpr std::array<std::string_view, 7> kOutcomes = {"exited",     "signaled", "timed_out",  "killed",
                                                       "oom_killed", "unknown",  "not_started"};

Outcome outcome_of(std::string_view name) {
  const auto found = std::find(kOutcomes.begin(), kOutcomes.end(), name);
  return found == kOutcomes.end() ? Outcome::kUnknown : static_cast<Outcome>(found - kOutcomes.begin());
}

// A date in a row as one on disk, or back. 0 is none.
Int64 moved(Int64 date, Int64 by_ms) { return date == 0 ? 0 : std::max<Int64>(1, date + by_ms); }

// ---- rows as columns: a statement bound to vectors runs once per batch ----

struct OutcomeColumns {
  Optionals ended, exit_code;
  Strings outcome, reason;
  Numbers signal, out, err, duration;

  void push(const ExecOutcome& o, bool open = false) {
    ended.push_back(open ? Poco::Nullable<Int64>() : Poco::Nullable<Int64>(o.ended_ms));
    exit_code.push_back(o.exit_code ? Poco::Nullable<Int64>(*o.exit_code) : Poco::Nullable<Int64>());
    outcome.emplace_back(open ? "" : outcome_name(o.outcome));
    reason.push_back(o.reason);
    signal.push_back(o.signal);
    out.push_back(static_cast<Int64>(o.stdout_bytes));
    err.push_back(static_cast<Int64>(o.stderr_bytes));
    duration.push_back(static_cast<Int64>(o.duration_ms));
  }
  void clear() { *this = {}; }
  ExecOutcome at(size_t i) const {
    ExecOutcome o;
    o.ended_ms = ended[i].value();
    o.outcome = outcome_of(outcome[i]);
    if (!exit_code[i].isNull()) o.exit_code = static_cast<int32_t>(exit_code[i].value());
    o.signal = static_cast<int32_t>(signal[i]);
    o.reason = reason[i];
    o.stdout_bytes = static_cast<uint64_t>(out[i]);
    o.stderr_bytes = static_cast<uint64_t>(err[i]);
    o.duration_ms = static_cast<double>(duration[i]);
    return o;
  }
};

struct ExecColumns {
  Numbers seq, started;
  Strings exec_id, sandbox_id, tenant, backend, request_id, command;
  OutcomeColumns end;
  Optionals kept_until, kept_flags, kept_bytes;  // when selected

  void push(const NewExec& exec) {
    const ExecRow& row = exec.row;
    seq.push_back(exec.seq);
    exec_id.push_back(row.exec_id);
    sandbox_id.push_back(row.sandbox_id);
    tenant.push_back(row.tenant);
    backend.push_back(row.backend);
    request_id.push_back(row.request_id);
    command.push_back(row.command);
    started.push_back(row.started_ms);
    end.push(row.ended.value_or(ExecOutcome()), !row.ended);
  }
  ExecRow at(size_t i, Int64 clock_ahead) const {
    ExecRow row{exec_id[i], sandbox_id[i], tenant[i],    backend[i],  request_id[i],
                command[i], started[i],    std::nullopt, std::nullopt};
    if (!end.ended[i].isNull()) row.ended = end.at(i);
    if (!kept_until[i].isNull())
      row.kept = {moved(kept_until[i].value(), -clock_ahead), (kept_flags[i].value() & kStdinOpen) != 0,
                  (kept_flags[i].value() & kPty) != 0, static_cast<uint64_t>(kept_bytes[i].value())};
    return row;
  }
};

// What is bound, kept while its statement lives.
struct InsertExecs {
  ExecColumns columns;
  Statement statement;
  explicit InsertExecs(Session& session, ExecColumns first) : columns(std::move(first)), statement(session) {
    ExecColumns& c = columns;
    statement << "INSERT INTO execs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", use(c.seq),
        use(c.exec_id), use(c.sandbox_id), use(c.tenant), use(c.backend), use(c.request_id), use(c.command),
        use(c.started), use(c.end.ended), use(c.end.outcome), use(c.end.exit_code), use(c.end.signal),
        use(c.end.reason), use(c.end.out), use(c.end.err), use(c.end.duration);
  }
};

struct CloseExecs {
  Numbers seq;
  OutcomeColumns end;
  Statement statement;
  CloseExecs(Session& session, Numbers keys, OutcomeColumns first)
      : seq(std::move(keys)), end(std::move(first)), statement(session) {
    statement << "UPDATE execs SET ended_ms = ?, outcome = ?, exit_code = ?, signal = ?, reason = ?, "
                 "stdout_bytes = ?, stderr_bytes = ?, duration_ms = ? WHERE seq = ? AND ended_ms IS NULL",
        use(end.ended), use(end.outcome), use(end.exit_code), use(end.signal), use(end.reason), use(end.out),
        use(end.err), use(end.duration), use(seq);
  }
};

std::vector<ExecRow> select_execs(Session& session, Int64 clock_ahead, const std::string& where,
                                  const std::function<void(Statement&)>& bind = {}) {
  ExecColumns c;
  Statement statement(session);
  statement
      << "SELECT exec_id, sandbox_id, tenant, backend, request_id, command, started_ms, ended_ms, "
         "outcome, exit_code, signal, reason, stdout_bytes, stderr_bytes, duration_ms, deadline_ms, flags, "
         "kept_bytes FROM execs LEFT JOIN kept_execs USING (seq) " +
             where,
      into(c.exec_id), into(c.sandbox_id), into(c.tenant), into(c.backend), into(c.request_id),
      into(c.command), into(c.started), into(c.end.ended), into(c.end.outcome), into(c.end.exit_code),
      into(c.end.signal), into(c.end.reason), into(c.end.out), into(c.end.err), into(c.end.duration),
      into(c.kept_until), into(c.kept_flags), into(c.kept_bytes);
  if (bind) bind(statement);
  statement.execute();
  std::vector<ExecRow> rows;
  for (size_t i = 0; i < c.exec_id.size(); ++i) rows.push_back(c.at(i, clock_ahead));
  return rows;
}

void put_sandbox(Session& session, const SandboxRow& row, Int64 clock_ahead) {
  Poco::Nullable<Int64> disk;
  if (row.disk_limit_bytes) disk = static_cast<Int64>(std::min<uint64_t>(*row.disk_limit_bytes, INT64_MAX));
  session << "INSERT OR REPLACE INTO sandboxes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      sql::bind(row.sandbox_id), sql::bind(row.tenant), sql::bind(row.agent_id), sql::bind(row.backend),
      sql::bind(row.handle), sql::bind(Int64{row.uid}), sql::bind(Int64{row.isolation}),
      sql::bind(row.created_ms), sql::bind(row.last_used_ms), sql::bind(std::string(state_name(row.state))),
      sql::bind(disk), sql::bind(row.image), sql::bind(moved(row.expires_ms, clock_ahead)),
      sql::bind(row.e2b_record), now;
}

void remove_sandbox(Session& session, const std::string& id) {
  session << "DELETE FROM sandboxes WHERE sandbox_id = ?", sql::bind(id), now;
}

}  // namespace

std::string_view outcome_name(Outcome outcome) { return kOutcomes[static_cast<size_t>(outcome)]; }

std::string_view state_name(SandboxRow::State state) {
  for (const StateName& row : kStates)
    if (row.state == state) return row.name;
  return "opening";
}

struct StateDb::Impl {
  Impl(const std::string& path, bool sync, Int64 ahead)
      : session("SQLite", path), sync_sandboxes(sync), clock_ahead(ahead), ahead_on_disk(ahead) {}

  DiskReserve reserve;
  uint32_t since_top_up = 0;
  Session session;
  std::optional<InsertExecs> insert;
  std::optional<CloseExecs> close;
  bool sync_sandboxes;
  Int64 clock_ahead, ahead_on_disk;
  bool durable = false;
  bool keeps = true;  // kept_execs may have rows

  // A sandbox change is synced at once; the journal of execs may lose its end with the power.
  void set_durable(bool wanted) {
    if (durable == wanted) return;
    run(session, std::string("PRAGMA synchronous = ") + (wanted ? "FULL" : "NORMAL"));
    durable = wanted;
  }

  void write_opened(const std::vector<NewExec>& opened) {
    if (opened.empty()) return;
    ExecColumns columns;
    for (const NewExec& exec : opened) columns.push(exec);
    if (insert)
      insert->columns = std::move(columns);
    else
      insert.emplace(session, std::move(columns));
    insert->statement.execute();
    for (const NewExec& exec : opened)
      if (exec.row.kept && !exec.row.ended) write_kept(exec);
  }

  void write_kept(const NewExec& exec) {
    const KeptTerms& kept = *exec.row.kept;
    keeps = true;
    session << "INSERT INTO kept_execs VALUES (?, ?, ?, ?)", sql::bind(exec.seq),
        sql::bind(moved(kept.deadline_ms, clock_ahead)),
        sql::bind((kept.stdin_open ? kStdinOpen : 0) | (kept.pty ? kPty : 0)),
        sql::bind(static_cast<Int64>(kept.kept_bytes)), now;
  }

  void forget_kept(const std::vector<ClosedExec>& closed) {
    if (!keeps) return;
    Numbers seq;
    for (const ClosedExec& exec : closed) seq.push_back(exec.seq);
    session << "DELETE FROM kept_execs WHERE seq = ?", use(seq), now;
    keeps = number(session, "SELECT count(*) FROM kept_execs") != 0;
  }

  void write_closed(const std::vector<ClosedExec>& closed) {
    if (closed.empty()) return;
    Numbers seq;
    OutcomeColumns end;
    for (const ClosedExec& exec : closed) {
      seq.push_back(exec.seq);
      end.push(exec.outcome);
    }
    if (close) {
      close->seq = std::move(seq);
      close->end = std::move(end);
    } else {
      close.emplace(session, std::move(seq), std::move(end));
    }
    close->statement.execute();
    forget_kept(closed);
  }

  void write_touches(const StateBatch& batch) {
    for (const auto& [id, last_used_ms] : batch.touches)
      session << "UPDATE sandboxes SET last_used_ms = max(last_used_ms, ?) WHERE sandbox_id = ?",
          sql::bind(last_used_ms), sql::bind(id), now;
  }

  void move_dates() {
    Int64 by = clock_ahead - ahead_on_disk;
    session << "UPDATE sandboxes SET expires_ms = max(1, expires_ms + ?) WHERE expires_ms <> 0", use(by), now;
    session << "UPDATE kept_execs SET deadline_ms = max(1, deadline_ms + ?)", use(by), now;
  }

  void write(const StateBatch& batch) {
    const bool moves = clock_ahead != ahead_on_disk;
    set_durable(sync_sandboxes && (!batch.sandboxes.empty() || moves));
    run(session, "BEGIN IMMEDIATE");
    if (moves) move_dates();
    for (const SandboxChange& change : batch.sandboxes)
      change.remove ? remove_sandbox(session, change.row.sandbox_id)
                    : put_sandbox(session, change.row, clock_ahead);
    write_touches(batch);
    write_opened(batch.opened);
    write_closed(batch.closed);
    if (batch.sandboxes.empty() && batch.opened.empty() && batch.closed.empty())
      write_schema_version(session);  // which it has already
    run(session, "COMMIT");
    ahead_on_disk = clock_ahead;
  }

  // Statements that failed half-way are not used again. SQLite may have rolled back by itself.
  void give_up() {
    keeps = true;
    insert.reset();
    close.reset();
    try {
      run(session, "ROLLBACK");
    } catch (const Poco::Exception&) {  // there was no transaction left
    }
  }
};

StateDb::StateDb(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StateDb::~StateDb() = default;

Result<std::unique_ptr<StateDb>> StateDb::open(const std::string& path, bool sync_sandboxes,
                                               int64_t clock_ahead_ms) {
  static std::once_flag once;
  std::call_once(once, [] { Poco::Data::SQLite::Connector::registerConnector(); });
  if (Result<void> file = prepare_state_file(path); !file) return file.error();
  using Opened = std::unique_ptr<StateDb>;
  return guarded<Opened>("cannot use the state database `" + path + "`", [&]() -> Result<Opened> {
    auto impl = std::make_unique<Impl>(path, sync_sandboxes, clock_ahead_ms);
    if (Result<void> sound = set_up_state(impl->session, path); !sound) return sound.error();
    impl->reserve.open(path);
    return Opened(new StateDb(std::move(impl)));
  });
}

Result<std::vector<SandboxRow>> StateDb::load_sandboxes() {
  using Rows = std::vector<SandboxRow>;
  return guarded<Rows>("cannot load the sandboxes", [&]() -> Result<Rows> {
    Strings id, tenant, agent, backend, handle, state, image, e2b_record;
    Numbers uid, isolation, created, used, expires;
    Optionals disk;
    impl_->session
        << "SELECT sandbox_id, tenant, agent_id, backend, handle, uid, isolation, created_ms, "
           "last_used_ms, state, disk_limit_bytes, image, expires_ms, e2b_record FROM sandboxes ORDER BY "
           "sandbox_id",
        into(id), into(tenant), into(agent), into(backend), into(handle), into(uid), into(isolation),
        into(created), into(used), into(state), into(disk), into(image), into(expires), into(e2b_record), now;
    Rows rows;
    for (size_t i = 0; i < id.size(); ++i)
      rows.push_back({id[i], tenant[i], agent[i], backend[i], handle[i], static_cast<uint32_t>(uid[i]),
                      static_cast<uint32_t>(isolation[i]), created[i], used[i], state_of(state[i]),
                      disk[i].isNull() ? std::nullopt : std::optional<uint64_t>(disk[i].value()), image[i],
                      moved(expires[i], -impl_->ahead_on_disk), e2b_record[i]});
    return rows;
  });
}

Result<std::vector<ExecRow>> StateDb::load_open_execs() {
  return guarded<std::vector<ExecRow>>("cannot load the open execs", [&]() -> Result<std::vector<ExecRow>> {
    return select_execs(impl_->session, impl_->ahead_on_disk, "WHERE ended_ms IS NULL ORDER BY seq");
  });
}

Result<std::vector<std::pair<std::string, int64_t>>> StateDb::load_exec_ids() {
  using Ids = std::vector<std::pair<std::string, int64_t>>;
  return guarded<Ids>("cannot load the ids of execs", [&]() -> Result<Ids> {
    Strings id;
    Numbers seq;
    impl_->session << "SELECT exec_id, seq FROM execs ORDER BY seq", into(id), into(seq), now;
    Ids ids;
    for (size_t i = 0; i < id.size(); ++i) ids.emplace_back(id[i], seq[i]);
    return ids;
  });
}

Result<std::vector<ExecRow>> StateDb::load_exec(const std::string& exec_id, int64_t seq) {
  return guarded<std::vector<ExecRow>>("cannot load an exec", [&]() -> Result<std::vector<ExecRow>> {
    return select_execs(impl_->session, impl_->ahead_on_disk, "WHERE seq = ? AND exec_id = ?",
                        [&](Statement& statement) { statement, sql::bind(seq), sql::bind(exec_id); });
  });
}

Result<void> StateDb::apply(const StateBatch& batch) {
  Result<void> written = guarded<void>("cannot write the state database", [&]() -> Result<void> {
    impl_->write(batch);
    return {};
  });
  if (!written) impl_->give_up();
  if (++impl_->since_top_up % kBatchesATopUp == 0) impl_->reserve.top_up();
  return written;
}

void StateDb::set_clock_ahead(int64_t ms) { impl_->clock_ahead = ms; }

bool StateDb::has_dates_to_move() const { return impl_->clock_ahead != impl_->ahead_on_disk; }

Result<std::vector<std::string>> StateDb::prune(size_t keep, int64_t oldest_ms) {
  Result<Strings> pruned = guarded<Strings>("cannot prune the state database", [&]() -> Result<Strings> {
    Session& session = impl_->session;
    Strings ids;
    Numbers keys;
    impl_->set_durable(false);
    run(session, "BEGIN IMMEDIATE");
    session << "SELECT exec_id, seq FROM execs WHERE ended_ms < ? OR seq IN (SELECT seq FROM (SELECT seq, "
               "ended_ms, row_number() OVER (PARTITION BY tenant ORDER BY ended_ms DESC, seq DESC) AS place "
               "FROM execs WHERE ended_ms IS NOT NULL) ORDER BY place, ended_ms DESC LIMIT -1 OFFSET ?)",
        sql::bind(oldest_ms), sql::bind(static_cast<Int64>(keep)), into(ids), into(keys), now;
    if (!keys.empty()) session << "DELETE FROM execs WHERE seq = ?", use(keys), now;
    run(session, "COMMIT");
    return ids;
  });
  if (!pruned) impl_->give_up();
  return pruned;
}

}  // namespace isogate::front
