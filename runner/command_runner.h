// The Runner itself. Made in command_make.cc, runs in command.cc.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <optional>

#include "runner/cgroup.h"
#include "runner/init_keeper.h"
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

struct Terminal {
  Pty pty;
  PtyPump pump;
};
// A terminal in place of the three streams of the plan, pumped by the loop.
Result<std::unique_ptr<Terminal>> attach_terminal(const Command& command, Supervision& supervision);

class CommandRunner final : public Runner {
 public:
  explicit CommandRunner(RunnerOptions options);
  ~CommandRunner() override;
  Result<Ending> run(const Command& command) override;
  Result<isogate_evidence> measure(const Site& site, const Identity& identity,
                                   const isogate_evidence_request& request) override;
  Result<Site> enclose(EnclosureOptions options) override;
  Result<void> release(const Site& site) override;
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
  // command_enclosed.cc
  Result<std::unique_ptr<Cgroups>> nest(const EnclosureOptions& options);
  Result<Ending> run_enclosed(Enclosure& place, const Command& command, const PreparedProgram& program);
  Result<Ending> run_in_init(Enclosure& place, const Command& command, const std::string& order,
                             CgroupSlot& slot);
  Result<InitProcess> instruct_init(Enclosure& place, const Command& command, const std::string& order,
                                    const std::vector<int>& descriptors);
  Result<isogate_evidence> measure_enclosed(Enclosure& place, const Identity& identity,
                                            const isogate_evidence_request& request);
  void dismiss_init(InitProcess init, const Supervision& supervision, const CgroupSlot& slot);
  [[nodiscard]] int null_of(const Enclosure& place) const;
  Result<InitProcess> make_init(Enclosure& place, const Identity& identity);
  Result<InitProcess> take_init(Enclosure& place, const Identity& identity, bool fresh, int cancel_fd);

  void keep_stray(const Supervision& supervision);
  void reap_strays();

  RunnerOptions options_;
  Abilities abilities_;
  std::optional<Error> broken_;  // nothing can be run here
  Fd null_device_, host_pidfd_, child_signals_;
  uint64_t soft_files_ = 1024, hard_files_ = 1024;
  Fd init_image_;
  uint64_t bounding_ = ~uint64_t{0};
  TreeWalk walk_ = TreeWalk::children;
  SpawnStackPool stacks_;
  SpawnRescuer rescuer_;
  std::unique_ptr<Cgroups> cgroups_;
  pid_t watcher_ = -1;
  std::mutex strays_mutex_;
  std::vector<pid_t> strays_;           // killed, not ended yet: to be reaped later
  std::unique_ptr<InitKeeper> keeper_;  // made with the first enclosure; its thread uses what is above
};

}  // namespace isogate
