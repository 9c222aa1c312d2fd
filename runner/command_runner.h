// The Runner itself. Made in command_make.cc, runs in command.cc.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <optional>

#include "runner/cgroup.h"
#include "runner/spawn_stack.h"
#include "runner/supervise.h"

namespace isogate {

// Returns the stack when it goes.
class BorrowedStack {
 public:
  BorrowedStack(SpawnStackPool& pool, SpawnStack stack) : pool_(pool), stack_(stack) {}
  ~BorrowedStack() { pool_.give_back(stack_); }
  BorrowedStack(const BorrowedStack&) = delete;
  BorrowedStack& operator=(const BorrowedStack&) = delete;
  const SpawnStack* operator->() const { return &stack_; }
  const SpawnStack& operator*() const { return stack_; }

 private:
  SpawnStackPool& pool_;
  SpawnStack stack_;
};

class CommandRunner final : public Runner {
 public:
  explicit CommandRunner(RunnerOptions options);
  ~CommandRunner() override;
  Result<Ending> run(const Command& command) override;
  Result<isogate_evidence> measure(const Identity& identity) override;
  const Abilities& abilities() const override { return abilities_; }

 private:
  void open_descriptors();
  void make_cgroups();
  std::string try_leaf();
  std::string start_watcher();
  void lack(const std::string& what);
  void notice(const std::string& line) const;
  Result<CgroupSlot> acquire(const Command& command, bool want_leaf);
  Result<Ending> run_in(const Command& command, const PreparedProgram& program, CgroupSlot& slot,
                        bool* again);
  void supervise(Supervision& supervision, const SpawnStack& stack);
  void plan(Supervision& supervision, const Command& command, const CgroupSlot& slot,
            const SpawnStack& stack);
  void keep_stray(const Supervision& supervision);
  void reap_strays();

  RunnerOptions options_;
  Abilities abilities_;
  std::optional<Error> broken_;  // nothing can be run here
  Fd null_device_, host_pidfd_, child_signals_;
  uint64_t soft_files_ = 1024, hard_files_ = 1024;
  TreeWalk walk_ = TreeWalk::children;
  SpawnStackPool stacks_;
  SpawnRescuer rescuer_;
  std::unique_ptr<Cgroups> cgroups_;
  pid_t watcher_ = -1;
  std::mutex strays_mutex_;
  std::vector<pid_t> strays_;  // killed, not ended yet: to be reaped later
};

}  // namespace isogate
