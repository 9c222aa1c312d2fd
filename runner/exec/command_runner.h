// The Runner itself, of command.cc.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <optional>

#include "runner/cgroup/cgroup.h"
#include "runner/enclosure/init_keeper.h"
#include "runner/exec/spawn/spawn_stack.h"
#include "runner/exec/tree/limit_sampler.h"
#include "runner/exec/tree/reaper.h"

namespace isogate {

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
  Result<CgroupSlot> acquire(const Limits& limits, bool want_leaf);
  // The limits for which no group is available, if they may be sampled.
  [[nodiscard]] Limits sampled_of(const Command& command) const;
  Result<Ending> run_sampled(const Command& command, const PreparedProgram& program, const Limits& sampled);
  // `sampled`: needs a slot without a leaf.
  Result<Ending> run_in(const Command& command, const PreparedProgram& program, CgroupSlot& slot,
                        const Limits& sampled, bool* again);
  void run_loop(RunLoop& loop, const SpawnStack& stack);
  // What the spawns of one identity have in common; its streams are /dev/null.
  [[nodiscard]] SpawnPlan plan_of(const Identity& identity, const SpawnStack& stack) const;
  void plan(RunLoop& loop, const Command& command, const CgroupSlot& slot, const SpawnStack& stack);
  Result<std::unique_ptr<Cgroups>> nest(EnclosureOptions& options);  // fills `cgroups` of them
  Result<Ending> run_enclosed(Enclosure& place, const Command& command, const PreparedProgram& program);
  Result<Ending> run_in_init(Enclosure& place, const Command& command, const std::string& order,
                             Cgroups* groups, CgroupSlot& slot);
  Result<InitProcess> instruct_init(Enclosure& place, const Command& command, const std::string& order,
                                    Cgroups* groups, const std::vector<int>& streams, CgroupSlot& slot);
  Result<isogate_evidence> measure_enclosed(Enclosure& place, const Identity& identity,
                                            const isogate_evidence_request& request);
  void bury(Enclosure& place, InitProcess init, CgroupSlot& slot);
  void dismiss_init(Enclosure& place, InitProcess init, const Command& command, const RunLoop& loop,
                    bool out_of_memory, CgroupSlot& slot);
  [[nodiscard]] int null_of(const Enclosure& place) const;
  Result<InitProcess> make_init(Enclosure& place, const Identity& identity);
  Result<InitProcess> take_init(Enclosure& place, const Identity& identity, bool fresh, int cancel_fd);

  void keep_dying(const RunLoop& loop);
  void reap_dying();

  RunnerOptions options_;
  Abilities abilities_;
  std::optional<Error> broken_;  // nothing can be run here
  Fd null_device_, host_pidfd_, child_signals_;
  const std::vector<ProcessLimit> process_limits_ = program_limits();
  Fd init_image_;
  uint64_t ignored_signals_ = ~uint64_t{0}, bounding_ = ~uint64_t{0};  // what a child has to reset
  TreeWalk walk_ = TreeWalk::children;
  SpawnStackPool stacks_;
  SpawnRescuer rescuer_;
  LimitSampler sampler_{raw_tree_walk()};
  std::unique_ptr<Cgroups> cgroups_;
  pid_t watcher_ = -1;
  std::mutex dying_mutex_;
  std::vector<pid_t> dying_;            // killed, not ended yet: reaped later
  std::unique_ptr<InitKeeper> keeper_;  // made with the first enclosure; its thread uses what is above
};

}  // namespace isogate
