// The cgroups of one Runner: pooled cgroup2 leaves, by which a tree is killed, and fresh groups per run for
// the limits it asks for.
//
// A leaf keeps its descriptors open and is reused until it is killed: on some kernels the children of
// a group after cgroup.kill are killed at birth. Limits come from the hierarchy that has the
// controller (v1, v2, or both side by side); the constructor proves each by making a group, setting
// the limit and reading it back. Where it has the pids controller, all runs with a slot are bounded
// together by most_pids_below(). Any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/limits.h"
#include "runner/cgroup/cgroup_base.h"

namespace isogate {

struct CgroupLeaf {
  std::string name;
  Fd directory, events, kill;
  bool pooled = true;  // false: made for the limits of one run, or spent
};

struct CgroupLimit {  // a v1 group of one run
  const CgroupBase* base = nullptr;
  std::string name;     // empty: the base itself
  Fd directory, tasks;  // a single thread joins by `tasks` without a lock that all of the host shares
  bool pooled = false;  // without its own limits: it shows which run's memory ran out
};

// The groups that limit its processor time: its own, and the one it shares with other runs. A killed process
// needs processor time to end. If that takes too long, its own limit is lifted, and the shared one, which
// other runs still have, is raised by one processor.
struct CpuQuota {
  int own_fd = -1, shared_fd = -1;  // directories; borrowed
  int version = 0;
  char raised[32] = {};  // the shared one's new value
};

struct CgroupSlot {                  // what one run lives in
  std::unique_ptr<CgroupLeaf> leaf;  // none: a reaper is needed
  std::string leaf_failure;          // why there is none although there should be
  std::vector<CgroupLimit> limits;
  Fd oom_events;               // its oom_kill counter; none without a memory limit
  uint64_t oom_before = 0;     // its counter before the run
  bool oom_kills_one = false;  // v1: the rest of the tree is ours to kill
  CpuQuota quota;
  bool quota_raised = false;  // release() puts it in force again
};

class Cgroups {
 public:
  static std::unique_ptr<Cgroups> make(const std::string& group, bool want_leaf);
  ~Cgroups();

  // Groups below this one's: `limits` apply to all runs in them together. A limit that cannot be enforced
  // is ISOGATE_UNSUPPORTED, or left out with best_effort. This object outlives them. *name_space, if
  // requested: a cgroup namespace with these groups as roots, for programs that join the groups after
  // their own namespaces were made: /proc/self/cgroup then shows no path of this host. Empty: they
  // join none.
  Result<std::unique_ptr<Cgroups>> nest(const Limits& limits, bool best_effort, Fd* name_space = nullptr);
  // Of nest(), read back.
  [[nodiscard]] Limits in_force() const;

  [[nodiscard]] uint64_t capabilities() const;  // ISOGATE_CAP_LIMIT_*
  [[nodiscard]] bool has_leaf() const { return pools_leaves_; }
  // Leaves are available, if only for limits.
  [[nodiscard]] bool v2_usable() const { return v2_base_ != nullptr; }
  [[nodiscard]] std::string missing() const;  // "memory, cpu: why; cgroup2 leaf: why", or empty
  void refuse_leaf(const std::string& why);   // it was shown not to work; before the first acquire
  [[nodiscard]] const std::vector<std::unique_ptr<CgroupBase>>& bases() const { return bases_; }

  Result<std::unique_ptr<CgroupLeaf>> make_leaf();
  // ISOGATE_UNSUPPORTED names the controller and the reason.
  Result<void> check(const Limits& limits) const;
  // Whether a run with these limits has its own leaf, and no reaper.
  [[nodiscard]] bool in_leaf(const Limits& limits) const;
  // A slot that is used again: the quota of all together, where it was raised, is in force again.
  Result<void> check_quota();
  // A leaf if possible, and the groups for the limits. With want_leaf false, a leaf only if a limit needs
  // it.
  Result<CgroupSlot> acquire(const Limits& limits, bool want_leaf = true);
  void release(CgroupSlot slot);  // a leaf that is not `pooled` any more is removed

 private:
  [[nodiscard]] Result<Fd> make_namespace(const Limits& limits) const;
  enum Kind { kMemory, kCpu, kPids, kKinds };
  struct Controller {
    const CgroupBase* base = nullptr;  // null: not available
    std::string why = "no cgroup controller for it is mounted";
  };
  static const char* name_of(int kind);
  static uint64_t asked(const Limits& limits, int kind);
  static Result<void> set(int kind, int group_fd, int version, uint64_t value);
  Cgroups() = default;
  void find_controller(int kind, const CgroupBase& base);
  void bound_pids();
  Result<std::unique_ptr<CgroupLeaf>> take_leaf(bool fresh);
  Result<int> own_group(CgroupSlot& slot, const CgroupBase* base);
  Result<void> limit_run(CgroupSlot& slot, const Limits& limits);
  Result<void> limit_all(int kind, uint64_t value);
  // Lets each run have its own limit also of a kind that all together have none of.
  void enable_all();
  Result<void> join_shared(CgroupSlot& slot);
  [[nodiscard]] bool bounds_in_v1() const;
  Result<void> join_bound(CgroupSlot& slot) const;
  bool restore_quota();
  void note_quota(CgroupSlot& slot, const Limits& limits) const;
  bool keep_for_reuse(CgroupLimit& limit);
  Result<void> join_shared_memory(CgroupSlot& slot, const CgroupBase& base);
  Result<CgroupLimit> make_limit(const CgroupBase& base);
  Result<void> fill(CgroupSlot& slot, const Limits& limits, bool want_leaf);
  void remove(const CgroupBase& base, std::string name);
  std::string next_name();

  std::vector<std::unique_ptr<CgroupBase>> bases_;
  const CgroupBase* v2_base_ = nullptr;  // of the leaves; null: there are none
  bool pools_leaves_ = false;            // also leaves without limits are wanted
  std::string leaf_why_;
  std::array<Controller, kKinds> controllers_;
  std::atomic<uint64_t> next_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<CgroupLeaf>> free_;
  std::atomic<bool> quota_lost_{false};                            // the shared limit is not in force
  Limits shared_;                                                  // of nest()
  bool pids_bounded_ = false;                                      // of all runs together
  std::vector<CgroupLimit> free_v1_;                               // of nest(), for memory
  std::vector<std::pair<const CgroupBase*, std::string>> undead_;  // still busy; tried again at each release
};

}  // namespace isogate
