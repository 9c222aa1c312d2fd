#include "gateway/front/state/state.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "gateway/front/state/state_db.h"
#include "lib/clock.h"
#include "lib/redact.h"
#include "lib/thread.h"

namespace isogate::front {
namespace {

constexpr std::chrono::milliseconds kGather{20};   // execs wait for others to share a commit
constexpr std::chrono::milliseconds kRetry{1000};  // after a failed write
constexpr size_t kPruneAfter = 2000;               // execs between two prunings
constexpr int64_t kClockMovedMs = 2000;            // less is not followed

}  // namespace

// Owns the database and the thread that writes it. Everything below `mutex_` is guarded by it; the
// database is the writer thread's alone once that runs.
class State::Writer {
 public:
  Writer(std::unique_ptr<StateDb> db, Options options, int64_t clock_ahead_ms)
      : db_(std::move(db)), options_(std::move(options)), clock_ahead_ms_(clock_ahead_ms) {}
  ~Writer() { stop(); }

  Result<void> start() {
    auto ids = db_->load_exec_ids();
    if (!ids) return ids.error();
    for (auto& [id, seq] : *ids) {
      next_seq_ = std::max(next_seq_, seq + 1);
      known_.emplace(std::move(id), seq);
    }
    thread_ = start_thread([this] { run(); });
    return {};
  }

  void change_sandbox(SandboxRow row, bool remove, Done done) {
    std::lock_guard lock(mutex_);
    pending_.sandboxes.push_back({std::move(row), remove, std::move(done)});
    wake(true);
  }

  void touch(std::string sandbox_id, int64_t last_used_ms) {
    std::lock_guard lock(mutex_);
    int64_t& latest = pending_.touches[std::move(sandbox_id)];
    latest = std::max(latest, last_used_ms);
    wake(false);
  }

  void exec_opened(ExecRow row) {
    std::lock_guard lock(mutex_);
    if (in_flight_ + pending_.opened.size() + pending_.closed.size() >= options_.max_pending_execs) {
      ++dropped_;
      return wake(false);
    }
    auto [known, fresh] = known_.try_emplace(row.exec_id, next_seq_);
    if (!fresh) return;
    pending_.opened.push_back({next_seq_++, std::move(row)});
    wake(false);
  }

  void exec_closed(const std::string& exec_id, ExecOutcome outcome) {
    std::lock_guard lock(mutex_);
    auto known = known_.find(exec_id);
    if (known == known_.end()) return;
    ClosedExec closed{known->second, std::move(outcome)};
    if (!end_in(pending_.opened, closed)) pending_.closed.push_back(std::move(closed));
    wake(false);
  }

  void follow_clock() {
    const int64_t ahead = options_.clock_ahead_ms();
    std::lock_guard lock(mutex_);
    if (std::abs(ahead - clock_ahead_ms_) <= kClockMovedMs) return;
    clock_ahead_ms_ = ahead;
    wake(true);
  }

  // Runs `work` on the writer thread after all calls before it, with how writing them went.
  void then(std::function<void(const Result<void>&)> work, bool urgent = true) {
    std::lock_guard lock(mutex_);
    queries_.push_back(std::move(work));
    wake(urgent);
  }

  template <typename T>
  Result<T> wait_for(std::function<Result<T>(const Result<void>&)> work) {
    const auto answer = std::make_shared<std::promise<Result<T>>>();  // which set_value() may use longer
    auto made = answer->get_future();
    then([answer, &work](const Result<void>& before) { answer->set_value(work(before)); });
    return made.get();
  }

  // What could not be written yet is still pending.
  Result<std::optional<ExecRow>> find(const std::string& exec_id) {
    std::optional<int64_t> seq = seq_of(exec_id);
    if (!seq) return std::optional<ExecRow>();
    if (std::optional<ExecRow> pending = pending_row(*seq)) return pending;
    Result<std::vector<ExecRow>> rows = db_->load_exec(exec_id, *seq);
    if (!rows) return rows.error();
    if (rows->empty()) return std::optional<ExecRow>();
    if (!rows->front().ended) rows->front().ended = pending_end(*seq);
    return std::optional(std::move(rows->front()));
  }

  Result<std::vector<ExecRow>> close_open(const std::string& reason, int64_t at_ms) {
    Result<std::vector<ExecRow>> rows = db_->load_open_execs();
    if (!rows) return rows;
    StateBatch batch;
    for (ExecRow& row : *rows) {
      if (row.kept) continue;
      std::optional<int64_t> seq = seq_of(row.exec_id);
      row.ended.emplace();
      row.ended->ended_ms = at_ms;
      row.ended->outcome = Outcome::kUnknown;
      row.ended->reason = reason;
      row.ended->duration_ms = static_cast<double>(std::max<int64_t>(0, at_ms - row.started_ms));
      if (seq) batch.closed.push_back({*seq, *row.ended});
    }
    if (batch.closed.empty()) return rows;
    if (Result<void> written = db_->apply(batch); !written) return written.error();
    return rows;
  }

  StateDb& db() { return *db_; }

  std::optional<Error> last_error() const {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  using Query = std::function<void(const Result<void>&)>;

  void wake(bool urgent) {
    urgent_ |= urgent;
    if (urgent || !awake_) signal_.notify_one();
    awake_ = true;
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      signal_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

  std::optional<int64_t> seq_of(const std::string& exec_id) const {
    std::lock_guard lock(mutex_);
    auto known = known_.find(exec_id);
    return known == known_.end() ? std::nullopt : std::optional(known->second);
  }

  std::optional<ExecRow> pending_row(int64_t seq) const {
    std::lock_guard lock(mutex_);
    const std::vector<NewExec>& opened = pending_.opened;
    if (opened.empty() || seq < opened.front().seq) return std::nullopt;
    return opened[static_cast<size_t>(seq - opened.front().seq)].row;
  }

  std::optional<ExecOutcome> pending_end(int64_t seq) const {
    std::lock_guard lock(mutex_);
    for (const ClosedExec& closed : pending_.closed)
      if (closed.seq == seq) return closed.outcome;
    return std::nullopt;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      auto hurry = [&] { return urgent_ || stopping_; };
      if (error_) {
        signal_.wait_for(lock, kRetry, hurry);
      } else {
        signal_.wait(lock, [&] { return awake_ || stopping_; });
        signal_.wait_for(lock, kGather, hurry);
      }
      bool last = stopping_;
      StateBatch batch = take();
      std::vector<Query> queries = std::exchange(queries_, {});
      db_->set_clock_ahead(clock_ahead_ms_);
      lock.unlock();
      write(batch, queries);
      lock.lock();
      in_flight_ = 0;
      if (last) return;
    }
  }

  StateBatch take() {
    awake_ = urgent_ = false;
    StateBatch batch = std::exchange(pending_, {});
    in_flight_ = batch.opened.size() + batch.closed.size();
    return batch;
  }

  void write(StateBatch& batch, std::vector<Query>& queries) {
    bool nothing = batch.sandboxes.empty() && batch.touches.empty() && batch.opened.empty() &&
                   batch.closed.empty() && !db_->has_dates_to_move();
    Result<void> written;
    if (!nothing || last_error()) written = db_->apply(batch);
    std::vector<SandboxChange> changes = std::exchange(batch.sandboxes, {});
    size_t execs = batch.opened.size();
    if (!written) put_back(batch);
    report_health(written);
    for (SandboxChange& change : changes)
      if (change.done) change.done(written);
    for (Query& query : queries) query(written);
    if (written) prune_now_and_then(execs);
  }

  // Execs are tried again, in front of what came meanwhile; so seq stays without gaps.
  void put_back(StateBatch& batch) {
    std::lock_guard lock(mutex_);
    in_flight_ = 0;
    for (ClosedExec& closed : std::exchange(pending_.closed, {}))
      if (!end_in(batch.opened, closed)) batch.closed.push_back(std::move(closed));
    std::vector<NewExec> since = std::exchange(pending_.opened, std::move(batch.opened));
    std::move(since.begin(), since.end(), std::back_inserter(pending_.opened));
    pending_.closed = std::move(batch.closed);
    pending_.touches.merge(batch.touches);
  }

  // Of one that is not written yet. False: it is not among these.
  static bool end_in(std::vector<NewExec>& opened, ClosedExec& closed) {
    if (opened.empty() || closed.seq < opened.front().seq) return false;
    std::optional<ExecOutcome>& ended =
        opened[static_cast<size_t>(closed.seq - opened.front().seq)].row.ended;
    if (!ended) ended = std::move(closed.outcome);
    return true;
  }

  void report_health(const Result<void>& written) {
    std::optional<Error> error, lost;
    if (!written) error = written.error();
    bool changed = false;
    {
      std::lock_guard lock(mutex_);
      if ((!error || stopping_) && dropped_ > reported_dropped_) {
        reported_dropped_ = dropped_;
        lost = Error{ISOGATE_RESOURCE_EXHAUSTED, 0, lost_text()};
      }
      changed = lost || error.has_value() != error_.has_value();
      error_ = error;
    }
    if (!options_.on_health) return;
    if (lost) options_.on_health(lost);
    if (changed) options_.on_health(error);
  }

  std::string lost_text() const {
    return std::to_string(dropped_) + " exec records were given up, the state database could not keep up";
  }

  void prune_now_and_then(size_t execs) {
    since_prune_ += execs;
    if (since_prune_ < kPruneAfter && wall_clock_ms() < next_prune_ms_) return;
    since_prune_ = 0;
    next_prune_ms_ = wall_clock_ms() + 3600 * 1000;
    Result<std::vector<std::string>> pruned =
        db_->prune(options_.max_closed_execs, wall_clock_ms() - options_.max_closed_age_ms);
    if (!pruned) return report_health(pruned.error());
    std::lock_guard lock(mutex_);
    for (const std::string& id : *pruned) known_.erase(id);
  }

  std::unique_ptr<StateDb> db_;
  Options options_;
  size_t since_prune_ = 0;  // these three: the writer thread's
  int64_t next_prune_ms_ = 0;
  uint64_t reported_dropped_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable signal_;
  StateBatch pending_;
  std::unordered_map<std::string, int64_t> known_;  // exec_id → seq, of all rows there are
  std::vector<Query> queries_;
  size_t in_flight_ = 0;  // execs in the batch that is being written
  int64_t next_seq_ = 1;
  uint64_t dropped_ = 0;
  int64_t clock_ahead_ms_;
  bool awake_ = false, urgent_ = false, stopping_ = false;
  std::optional<Error> error_;
  std::thread thread_;
};

State::State(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
State::~State() = default;

Result<std::unique_ptr<State>> State::open(const std::string& path, Options options) {
  int64_t ahead = options.clock_ahead_ms();
  if (std::abs(ahead) <= kClockMovedMs) ahead = 0;
  Result<std::unique_ptr<StateDb>> db = StateDb::open(path, options.sync_sandboxes, ahead);
  if (!db) return db.error();
  auto writer = std::make_unique<Writer>(std::move(*db), std::move(options), ahead);
  if (Result<void> started = writer->start(); !started) return started.error();
  return std::unique_ptr<State>(new State(std::move(writer)));
}

Result<std::vector<SandboxRow>> State::load_sandboxes() {
  return writer_->wait_for<std::vector<SandboxRow>>(
      [this](const Result<void>& before) -> Result<std::vector<SandboxRow>> {
        if (!before) return before.error();
        return writer_->db().load_sandboxes();
      });
}

Result<std::vector<ExecRow>> State::close_open_execs(const std::string& reason, int64_t at_ms) {
  return writer_->wait_for<std::vector<ExecRow>>(
      [&](const Result<void>& before) -> Result<std::vector<ExecRow>> {
        if (!before) return before.error();
        return writer_->close_open(reason, at_ms);
      });
}

void State::put_sandbox(SandboxRow row, Done done) {
  writer_->change_sandbox(std::move(row), false, std::move(done));
}

void State::remove_sandbox(std::string sandbox_id, Done done) {
  SandboxRow row;
  row.sandbox_id = std::move(sandbox_id);
  writer_->change_sandbox(std::move(row), true, std::move(done));
}

void State::touch_sandbox(std::string sandbox_id, int64_t last_used_ms) {
  writer_->touch(std::move(sandbox_id), last_used_ms);
}

void State::follow_clock() { writer_->follow_clock(); }

void State::exec_opened(ExecRow row) { writer_->exec_opened(std::move(row)); }

void State::exec_closed(const std::string& exec_id, ExecOutcome outcome) {
  outcome.reason = redact(outcome.reason);
  writer_->exec_closed(exec_id, std::move(outcome));
}

void State::find_exec(std::string exec_id, std::function<void(Result<std::optional<ExecRow>>)> found) {
  writer_->then([this, exec_id = std::move(exec_id),
                 found = std::move(found)](const Result<void>&) { found(writer_->find(exec_id)); },
                false);
}

Result<void> State::flush() {
  return writer_->wait_for<void>([](const Result<void>& before) { return before; });
}

std::optional<Error> State::last_error() const { return writer_->last_error(); }

}  // namespace isogate::front
