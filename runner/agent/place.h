// The state that all calls of a runner share: its user, its workspace, and what runs the programs.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runner/agent/options.h"
#include "runner/agent/orphans.h"
#include "runner/exec/command.h"
#include "runner/exec/environment.h"
#include "runner/files/disk_quota.h"
#include "runner/files/workspace.h"

namespace isogate::agent {

class KeptExecs;

class Place {  // any thread, once open() has returned
 public:
  Place();
  ~Place();  // kills what outlived its session
  Result<void> open(const Options& options);

  [[nodiscard]] Runner& runner() const { return *runner_; }
  [[nodiscard]] Workspace& workspace() const { return *workspace_; }
  [[nodiscard]] const Surroundings& surroundings() const { return surroundings_; }
  Orphans& orphans() { return orphans_; }
  KeptExecs& kept() { return *kept_; }
  // A call whose first descriptor has at least this number is refused.
  [[nodiscard]] int most_descriptors() const { return most_descriptors_; }

  // ISOGATE_UNSUPPORTED for any user except the one that everything here runs as.
  [[nodiscard]] Result<void> check_user(std::string_view user) const;
  // Where a program starts: O_PATH, or empty for the workspace itself. Relative and /workspace/… beneath the
  // workspace, absolute in the view of this process.
  [[nodiscard]] Result<Fd> directory(std::string_view cwd) const;
  [[nodiscard]] bool has_terminals() const;
  [[nodiscard]] std::string missing() const { return runner_->abilities().missing; }
  // How often the kernel has killed in this process's memory cgroup; 0 if that cannot be read.
  [[nodiscard]] uint64_t memory_kills() const;
  // What bounds or counts the workspace; null: nothing.
  [[nodiscard]] const std::shared_ptr<DiskQuota>& disk() const { return disk_; }
  // The limit that the kernel enforces, as this process sees it; 0: none.
  [[nodiscard]] uint64_t disk_enforced() const { return disk_enforced_; }
  // Call after a program and everything it started: once none runs, removes what they left in
  // memory.
  void tidy();

 private:
  Result<void> open_disk(const Options& options);

  std::unique_ptr<Runner> runner_;
  DiskCounter counter_;
  std::shared_ptr<DiskQuota> disk_;
  uint64_t disk_enforced_ = 0;
  std::vector<SharedDir> shared_;
  std::unique_ptr<Workspace> workspace_;
  Surroundings surroundings_;
  Orphans orphans_;
  std::string scratch_;
  Fd root_, memory_events_;
  int most_descriptors_ = 0;
  std::unique_ptr<KeptExecs> kept_;  // last: it runs on the rest
};

}  // namespace isogate::agent
