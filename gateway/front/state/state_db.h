// The state database itself: files, schema, statements. The one place that knows Poco::Data.
// One thread at a time. Only State uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gateway/front/state/state.h"

namespace isogate::front {

struct SandboxChange {
  SandboxRow row;  // with remove, only its id counts
  bool remove = false;
  State::Done done;
};

struct NewExec {
  int64_t seq = 0;  // its key: grows, so that a batch touches few pages
  ExecRow row;
};

struct ClosedExec {
  int64_t seq = 0;
  ExecOutcome outcome;
};

struct StateBatch {
  std::vector<SandboxChange> sandboxes;              // applied in order
  std::unordered_map<std::string, int64_t> touches;  // last_used_ms by sandbox_id
  std::vector<NewExec> opened;                       // in order of seq, without gaps
  std::vector<ClosedExec> closed;
};

class StateDb {
 public:
  // `clock_ahead_ms`: by how much the dates on disk that end something are later than those in rows.
  static Result<std::unique_ptr<StateDb>> open(const std::string& path, bool sync_sandboxes,
                                               int64_t clock_ahead_ms = 0);
  ~StateDb();

  Result<std::vector<SandboxRow>> load_sandboxes();
  Result<std::vector<ExecRow>> load_open_execs();
  Result<std::vector<std::pair<std::string, int64_t>>> load_exec_ids();             // and their seq
  Result<std::vector<ExecRow>> load_exec(const std::string& exec_id, int64_t seq);  // at most one

  // All of it or nothing, in one transaction; writes something even when the batch is empty.
  Result<void> apply(const StateBatch& batch);
  // The next apply() moves the dates that are on disk, too.
  void set_clock_ahead(int64_t ms);
  [[nodiscard]] bool has_dates_to_move() const;

  // Deletes the closed execs beyond `keep`, those that ended first of the tenants that have the most, and
  // those that ended before `oldest_ms`; their ids.
  Result<std::vector<std::string>> prune(size_t keep, int64_t oldest_ms);

 private:
  struct Impl;
  explicit StateDb(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace isogate::front
