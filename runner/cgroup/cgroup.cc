#include "runner/cgroup/cgroup.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "runner/cgroup/cgroup_limits.h"
#include "runner/exec/apart.h"
#include "runner/exec/tree/reaper.h"

namespace isogate {
namespace {

Result<Fd> open_in(int directory, const char* name, int flags) {
  Fd file(::openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return os_error(std::string("cannot open `") + name + "` of a cgroup", errno);
  return file;
}

constexpr uint32_t kControlled[] = {ISOGATE_LIMIT_MEMORY_BYTES, ISOGATE_LIMIT_CPU_MILLIS, ISOGATE_LIMIT_PIDS};

Result<void> only_controlled(const Limits& limits, const char* of_what) {
  const std::string beside = limits.settings_beside(kControlled);
  if (beside.empty()) return {};
  return unsupported("no cgroup controller can enforce " + beside + " " + of_what);
}

// The counter of the kernel's out-of-memory kills in a group. One of v1 kills a single task.
Result<void> open_oom_events(CgroupSlot& slot, int group, int version) {
  auto events = open_in(group, version == 1 ? "memory.oom_control" : "memory.events", O_RDONLY);
  if (!events) return events.error();
  slot.oom_events = std::move(*events);
  slot.oom_kills_one = version == 1;
  return {};
}

bool has_group_in(const CgroupSlot& slot, const CgroupBase* base) {
  return std::any_of(slot.limits.begin(), slot.limits.end(),
                     [base](const CgroupLimit& limit) { return limit.base == base; });
}

// Of v1: the base itself.
Result<void> join_base(CgroupSlot& slot, const CgroupBase& base) {
  auto tasks = open_in(base.fd(), "tasks", O_WRONLY);
  if (!tasks) return tasks.error();
  slot.limits.push_back({&base, "", {}, std::move(*tasks)});
  return {};
}

}  // namespace

// Of the controller; the kind of limit has the same name.
const char* Cgroups::name_of(int kind) { return kLimitKinds[limit_row(kControlled[kind])].word; }

uint64_t Cgroups::asked(const Limits& limits, int kind) { return limits.get(kControlled[kind]); }

Result<void> Cgroups::set(int kind, int group_fd, int version, uint64_t value) {
  if (kind == kMemory) return set_memory_limit(group_fd, version, value);
  if (kind == kCpu) return set_cpu_limit(group_fd, version, value);
  return set_pids_limit(group_fd, version, value);
}

std::unique_ptr<Cgroups> Cgroups::make(const std::string& group, bool want_leaf) {
  std::unique_ptr<Cgroups> cgroups(new Cgroups);
  cgroups->leaf_why_ = want_leaf ? "no cgroup2 hierarchy is mounted" : "";
  auto hierarchies = detect_cgroups();
  // v2 first: what dead Runners left running is killed there, and their v1 groups can then be removed.
  std::stable_sort(hierarchies.begin(), hierarchies.end(),
                   [](const auto& a, const auto& b) { return a.version > b.version; });
  for (const auto& hierarchy : hierarchies) {
    const bool useful =
        hierarchy.version == 2 || hierarchy.has("memory") || hierarchy.has("cpu") || hierarchy.has("pids");
    if (!useful) continue;
    auto base = CgroupBase::make(hierarchy, group);
    if (!base) {
      for (int kind = 0; kind < kKinds; ++kind) {
        if (hierarchy.has(name_of(kind))) cgroups->controllers_[kind].why = base.error().message;
      }
      if (hierarchy.version == 2 && want_leaf) cgroups->leaf_why_ = base.error().message;
      continue;
    }
    const CgroupBase& made = *cgroups->bases_.emplace_back(std::move(*base));
    for (int kind = 0; kind < kKinds; ++kind) {
      if (hierarchy.has(name_of(kind))) cgroups->find_controller(kind, made);
    }
    if (hierarchy.version != 2) continue;
    cgroups->v2_base_ = &made;
    cgroups->pools_leaves_ = want_leaf;
    if (want_leaf) cgroups->leaf_why_.clear();
  }
  cgroups->bound_pids();
  return cgroups;
}

void Cgroups::bound_pids() {
  const CgroupBase* const base = controllers_[kPids].base;
  if (base == nullptr) return;
  const uint64_t most = most_pids_below(base->parent_fd());
  pids_bounded_ = most > 0 && set_pids_limit(base->fd(), base->version(), most).ok();
}

// Proven by trying it. A controller is only ever in one hierarchy.
void Cgroups::find_controller(int kind, const CgroupBase& base) {
  constexpr uint64_t kTrial[kKinds] = {64u << 20, 500, 64};
  Controller& controller = controllers_[kind];
  if (base.version() == 2) {
    if (auto enabled = base.enable(name_of(kind)); !enabled.ok()) {
      controller.why = enabled.error().message;
      return;
    }
  }
  const std::string name = next_name();
  auto group = base.make_group(name);
  if (!group) {
    controller.why = group.error().message;
    return;
  }
  auto trial = set(kind, group->get(), base.version(), kTrial[kind]);
  group->reset();
  (void)base.remove_group(name);
  if (trial.ok()) {
    controller.base = &base;
  } else {
    controller.why = trial.error().message;
  }
}

Cgroups::~Cgroups() {
  free_v1_.clear();
  for (const auto& leaf : free_) (void)v2_base_->remove_group(leaf->name);
}

uint64_t Cgroups::capabilities() const {
  uint64_t bits = 0;
  for (int kind = 0; kind < kKinds; ++kind)
    if (controllers_[kind].base != nullptr) bits |= kLimitKinds[limit_row(kControlled[kind])].exec;
  return bits;
}

std::string Cgroups::missing() const {
  std::vector<std::pair<std::string, std::string>> reasons;  // things, why
  const auto add = [&reasons](const std::string& thing, const std::string& why) {
    if (!reasons.empty() && reasons.back().second == why) {
      reasons.back().first += ", " + thing;
    } else {
      reasons.emplace_back(thing, why);
    }
  };
  for (int kind = 0; kind < kKinds; ++kind) {
    if (controllers_[kind].base == nullptr) add(name_of(kind), controllers_[kind].why);
  }
  if (!leaf_why_.empty()) add("cgroup2 leaf", leaf_why_);
  std::string line;
  for (const auto& [things, why] : reasons) line += (line.empty() ? "" : "; ") + things + ": " + why;
  return line;
}

void Cgroups::refuse_leaf(const std::string& why) {
  if (pools_leaves_) leaf_why_ = why;
  pools_leaves_ = false;
  // A run that v2 limits also has a leaf.
  for (auto& controller : controllers_) {
    if (controller.base != nullptr && controller.base->version() == 2) controller = {nullptr, why};
  }
  v2_base_ = nullptr;
}

std::string Cgroups::next_name() { return std::string("e").append(std::to_string(next_++)); }

Result<void> Cgroups::check(const Limits& limits) const {
  if (auto known = only_controlled(limits, "for one exec"); !known) return known;
  for (int kind = 0; kind < kKinds; ++kind) {
    if (asked(limits, kind) != 0 && controllers_[kind].base == nullptr) {
      return unsupported(std::string("the ") + name_of(kind) +
                         " limit cannot be enforced here: " + controllers_[kind].why);
    }
  }
  return {};
}

bool Cgroups::in_leaf(const Limits& limits) const {
  for (int kind = 0; kind < kKinds; ++kind) {
    const CgroupBase* const base = controllers_[kind].base;
    if (asked(limits, kind) != 0 && base != nullptr && base == v2_base_) return true;
  }
  return false;
}

Result<std::unique_ptr<CgroupLeaf>> Cgroups::make_leaf() {
  auto leaf = std::make_unique<CgroupLeaf>();
  leaf->name = next_name();
  auto directory = v2_base_->make_group(leaf->name);
  if (!directory) return directory.error();
  leaf->directory = std::move(*directory);
  auto events = open_in(leaf->directory.get(), "cgroup.events", O_RDONLY);
  auto kill = open_in(leaf->directory.get(), "cgroup.kill", O_WRONLY);
  if (!events || !kill) {
    remove(*v2_base_, leaf->name);
    return events ? kill.error() : events.error();
  }
  leaf->events = std::move(*events);
  leaf->kill = std::move(*kill);
  return leaf;
}

Result<std::unique_ptr<CgroupLeaf>> Cgroups::take_leaf(bool fresh) {
  if (!fresh) {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto leaf = std::move(free_.back());
      free_.pop_back();
      return leaf;
    }
  }
  auto leaf = make_leaf();
  if (leaf) (*leaf)->pooled = !fresh;
  return leaf;
}

Result<CgroupLimit> Cgroups::make_limit(const CgroupBase& base) {
  CgroupLimit limit{&base, next_name(), {}, {}};
  auto directory = base.make_group(limit.name);
  if (!directory) return directory.error();
  limit.directory = std::move(*directory);
  auto tasks = open_in(limit.directory.get(), "tasks", O_WRONLY);
  if (!tasks) {
    remove(base, limit.name);
    return tasks.error();
  }
  limit.tasks = std::move(*tasks);
  return limit;
}

// The group of a run alone in that hierarchy: its leaf, or one of v1 that is made when first needed.
Result<int> Cgroups::own_group(CgroupSlot& slot, const CgroupBase* base) {
  if (base == v2_base_) return slot.leaf->directory.get();
  for (const auto& limit : slot.limits)
    if (limit.base == base) return limit.directory.get();
  auto fresh = make_limit(*base);
  if (!fresh) return fresh.error();
  return slot.limits.emplace_back(std::move(*fresh)).directory.get();
}

Result<void> Cgroups::limit_run(CgroupSlot& slot, const Limits& limits) {
  for (int kind = 0; kind < kKinds; ++kind) {
    if (asked(limits, kind) == 0) continue;
    const CgroupBase* const base = controllers_[kind].base;
    const auto group = own_group(slot, base);
    if (!group) return group.error();
    if (auto done = set(kind, *group, base->version(), asked(limits, kind)); !done.ok()) return done;
    if (kind != kMemory) continue;
    if (auto opened = open_oom_events(slot, *group, base->version()); !opened) return opened;
  }
  return {};
}

Result<void> Cgroups::fill(CgroupSlot& slot, const Limits& limits, bool want_leaf) {
  const bool fresh = in_leaf(limits) || in_leaf(shared_);
  if (fresh || (want_leaf && has_leaf())) {
    auto leaf = take_leaf(fresh);
    if (leaf) {
      slot.leaf = std::move(*leaf);
    } else if (fresh) {
      return leaf.error();
    } else {
      slot.leaf_failure = leaf.error().message;
    }
  }
  if (auto limited = limit_run(slot, limits); !limited.ok()) return limited;
  if (auto joined = join_shared(slot); !joined) return joined;
  if (auto joined = join_bound(slot); !joined) return joined;
  note_quota(slot, limits);
  return {};
}

bool Cgroups::restore_quota() {
  const CgroupBase& base = *controllers_[kCpu].base;
  quota_lost_ = !set_cpu_limit(base.fd(), base.version(), shared_.get(ISOGATE_LIMIT_CPU_MILLIS)).ok();
  return !quota_lost_;
}

void Cgroups::note_quota(CgroupSlot& slot, const Limits& limits) const {
  const CgroupBase* const base = controllers_[kCpu].base;
  if (base == nullptr) return;
  slot.quota.version = base->version();
  if (const uint64_t shared = asked(shared_, kCpu); shared != 0) {
    slot.quota.shared_fd = base->fd();
    raised_cpu_limit(base->version(), shared).copy(slot.quota.raised, sizeof slot.quota.raised - 1);
  }
  if (asked(limits, kCpu) == 0) return;
  if (base == v2_base_) slot.quota.own_fd = slot.leaf->directory.get();
  for (const auto& limit : slot.limits)
    if (limit.base == base) slot.quota.own_fd = limit.directory.get();
}

Result<void> Cgroups::check_quota() {
  if (quota_lost_ && !restore_quota()) return unsupported("the cpu limit cannot be put in force again");
  return {};
}

Result<CgroupSlot> Cgroups::acquire(const Limits& wanted, bool want_leaf) {
  // v1 creates no group with more processor time than its parent, whose limit applies anyway.
  Limits limits = wanted;
  if (asked(shared_, kCpu) != 0 && asked(limits, kCpu) > asked(shared_, kCpu))
    limits.set(kControlled[kCpu], asked(shared_, kCpu));
  if (auto checked = check(limits); !checked.ok()) return checked.error();
  if (auto quota = check_quota(); !quota) return quota.error();
  CgroupSlot slot;
  auto filled = fill(slot, limits, want_leaf);
  if (filled.ok()) return slot;
  release(std::move(slot));
  return Error{ISOGATE_UNSUPPORTED, filled.error().os_errno,
               "the limits cannot be put in force: " + filled.error().message};
}

// Few: each costs two descriptors for as long as the sandbox is open.
bool Cgroups::keep_for_reuse(CgroupLimit& limit) {
  constexpr size_t kMost = 2;
  const std::lock_guard lock(mutex_);
  if (free_v1_.size() >= kMost) return false;
  free_v1_.push_back(std::move(limit));
  return true;
}

void Cgroups::release(CgroupSlot slot) {
  if (slot.quota_raised && slot.quota.shared_fd >= 0) restore_quota();
  for (auto& limit : slot.limits) {
    if (limit.pooled && keep_for_reuse(limit)) continue;
    if (!limit.name.empty()) {
      remove(*limit.base, std::move(limit.name));
    }
  }
  if (!slot.leaf) return;
  if (!slot.leaf->pooled) {
    remove(*v2_base_, std::move(slot.leaf->name));
    return;
  }
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(slot.leaf));
}

void Cgroups::remove(const CgroupBase& base, std::string name) {
  const bool removed = base.remove_group(name);
  const std::lock_guard lock(mutex_);
  if (!removed) {
    undead_.emplace_back(&base, std::move(name));
    return;
  }
  if (undead_.empty()) return;
  auto [other, old_name] = std::move(undead_.back());
  undead_.pop_back();
  if (!other->remove_group(old_name)) undead_.emplace_back(other, std::move(old_name));
}

// In a separate process, which moves only itself, and before the group has limits or child groups with
// controllers: on cgroup v2 nothing may join such a group.
Result<Fd> Cgroups::make_namespace(const Limits& limits) const {
  std::set<const CgroupBase*> groups;
  for (int kind = 0; kind < kKinds; ++kind)
    if (asked(limits, kind) != 0 && controllers_[kind].base != nullptr)
      groups.insert(controllers_[kind].base);
  if (bounds_in_v1()) groups.insert(controllers_[kPids].base);
  if (groups.empty()) return Fd();
  Fd made;
  const auto done = run_apart([&]() -> Result<void> {
    for (const CgroupBase* group : groups)
      if (auto joined = write_small_file(group->fd(), "cgroup.procs", "0"); !joined) return joined;
    if (::unshare(CLONE_NEWCGROUP) != 0) return os_error("cannot make a cgroup namespace", errno);
    made = Fd(::open("/proc/self/ns/cgroup", O_RDONLY | O_CLOEXEC));
    return made ? Result<void>() : os_error("cannot open a cgroup namespace", errno);
  });
  if (!done) return done.error();
  return made;
}

Result<std::unique_ptr<Cgroups>> Cgroups::nest(const Limits& limits, bool best_effort, Fd* name_space) {
  std::unique_ptr<Cgroups> nested(new Cgroups);
  const std::string name = "s" + std::to_string(next_++);
  nested->controllers_ = controllers_;
  for (const auto& above : bases_) {
    auto base = CgroupBase::nest(*above, name);
    if (!base) return base.error();
    const CgroupBase* const below = nested->bases_.emplace_back(std::move(*base)).get();
    for (Controller& controller : nested->controllers_)
      if (controller.base == above.get()) controller.base = below;
    if (v2_base_ == above.get()) nested->v2_base_ = below;
  }
  nested->pids_bounded_ = pids_bounded_;
  if (auto known = only_controlled(limits, "of a sandbox"); !known && !best_effort) return known.error();
  if (name_space != nullptr) {
    auto made = nested->make_namespace(limits);
    if (!made) return made.error();
    *name_space = std::move(*made);
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    const uint64_t value = asked(limits, kind);
    if (value == 0) continue;
    auto limited = check({{kControlled[kind], value}});
    if (limited) limited = nested->limit_all(kind, value);
    if (!limited && !best_effort) return limited.error();
  }
  nested->enable_all();
  return nested;
}

Result<void> Cgroups::limit_all(int kind, uint64_t value) {
  const CgroupBase& base = *controllers_[kind].base;
  if (auto done = set(kind, base.fd(), base.version(), value); !done) return done;
  if (base.version() == 2) {
    if (auto enabled = base.enable(name_of(kind)); !enabled) return enabled;
    // Only one run dies of it, not all of them: a leaf dies as a whole.
    if (kind == kMemory) {
      if (auto one = write_small_file(base.fd(), "memory.oom.group", "0"); !one) return one;
    }
  }
  shared_.set(kControlled[kind], value);
  return {};
}

void Cgroups::enable_all() {
  for (int kind = 0; kind < kKinds; ++kind) {
    Controller& controller = controllers_[kind];
    if (controller.base == nullptr || controller.base != v2_base_) continue;
    const auto enabled = v2_base_->enable(name_of(kind));
    if (!enabled) controller = {nullptr, enabled.error().message};
  }
}

Limits Cgroups::in_force() const {
  Limits found;
  for (int kind = 0; kind < kKinds; ++kind) {
    if (asked(shared_, kind) == 0) continue;
    const CgroupBase& base = *controllers_[kind].base;
    found.set(kControlled[kind], kind == kMemory ? read_memory_limit(base.fd(), base.version())
                                 : kind == kCpu  ? read_cpu_limit(base.fd(), base.version())
                                                 : read_pids_limit(base.fd()));
  }
  return found;
}

// A run shares the groups of controllers for which it has no group of its own.
Result<void> Cgroups::join_shared(CgroupSlot& slot) {
  if (slot.leaf && asked(shared_, kMemory) != 0 && controllers_[kMemory].base == v2_base_ &&
      !slot.oom_events) {
    if (auto whole = write_small_file(slot.leaf->directory.get(), "memory.oom.group", "1"); !whole)
      return whole;
    if (auto opened = open_oom_events(slot, slot.leaf->directory.get(), 2); !opened) return opened;
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    const CgroupBase* const base = controllers_[kind].base;
    if (asked(shared_, kind) == 0 || base == v2_base_ || has_group_in(slot, base)) continue;
    auto joined = kind == kMemory ? join_shared_memory(slot, *base) : join_base(slot, *base);
    if (!joined) return joined;
  }
  return {};
}

bool Cgroups::bounds_in_v1() const {
  return pids_bounded_ && controllers_[kPids].base != nullptr && controllers_[kPids].base != v2_base_;
}

// v1: a run without a limit on its processes counts all the same. On v2 its leaf does, if it has one.
Result<void> Cgroups::join_bound(CgroupSlot& slot) const {
  if (!bounds_in_v1() || has_group_in(slot, controllers_[kPids].base)) return {};
  return join_base(slot, *controllers_[kPids].base);
}

// A separate group within the shared one, used again, so that its counter shows whose memory ran out.
Result<void> Cgroups::join_shared_memory(CgroupSlot& slot, const CgroupBase& base) {
  CgroupLimit limit;
  {
    const std::lock_guard lock(mutex_);
    if (!free_v1_.empty()) {
      limit = std::move(free_v1_.back());
      free_v1_.pop_back();
    }
  }
  if (limit.base == nullptr) {
    auto fresh = make_limit(base);
    if (!fresh) return fresh.error();
    limit = std::move(*fresh);
  }
  CgroupLimit& own = slot.limits.emplace_back(std::move(limit));
  if (!own.pooled) {
    if (auto done = set_socket_memory_limit(own.directory.get(), 1, shared_.get(ISOGATE_LIMIT_MEMORY_BYTES));
        !done)
      return done;
    own.pooled = true;  // not before: release() removes one without that limit
  }
  if (auto opened = open_oom_events(slot, own.directory.get(), 1); !opened) return opened;
  slot.oom_before = raw_oom_kills(slot.oom_events.get());
  return {};
}

}  // namespace isogate
