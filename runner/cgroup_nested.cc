// Groups of a whole sandbox: limits that its runs share.
#include <fcntl.h>

#include <cerrno>

#include "runner/cgroup.h"
#include "runner/cgroup_limits.h"
#include "runner/supervise.h"

namespace isogate {

Result<std::unique_ptr<Cgroups>> Cgroups::nest(const isogate_limits& limits, bool best_effort) {
  std::unique_ptr<Cgroups> nested(new Cgroups);
  const std::string name = "s" + std::to_string(next_++);
  for (size_t i = 0; i < bases_.size(); ++i) {
    auto base = CgroupBase::nest(*bases_[i], name);
    if (!base) return base.error();
    nested->bases_.push_back(std::move(*base));
  }
  nested->controllers_ = controllers_;
  nested->v2_base_ = v2_base_;
  for (int kind = 0; kind < kKinds; ++kind) {
    const uint64_t value = asked(limits, kind);
    if (value == 0) continue;
    auto limited =
        check({kind == kMemory ? value : 0, kind == kCpu ? value : 0, kind == kPids ? value : 0, 0});
    if (limited) limited = nested->limit_all(kind, value);
    if (!limited && !best_effort) return limited.error();
  }
  return nested;
}

Result<void> Cgroups::limit_all(int kind, uint64_t value) {
  const CgroupBase& base = *bases_[static_cast<size_t>(controllers_[kind].base)];
  if (auto done = set(kind, base.fd(), base.version(), value); !done) return done;
  if (base.version() == 2) {
    if (auto enabled = base.enable(name_of(kind)); !enabled) return enabled;
    // One run dies of it, not all of them: the leaves are what dies whole.
    if (kind == kMemory) {
      if (auto one = write_small_file(base.fd(), "memory.oom.group", "0"); !one) return one;
    }
  }
  (kind == kMemory ? shared_.memory_bytes : kind == kCpu ? shared_.cpu_millis : shared_.pids) = value;
  return {};
}

isogate_limits Cgroups::in_force() const {
  isogate_limits found{};
  uint64_t* const values[kKinds] = {&found.memory_bytes, &found.cpu_millis, &found.pids};
  for (int kind = 0; kind < kKinds; ++kind) {
    if (asked(shared_, kind) == 0) continue;
    const CgroupBase& base = *bases_[static_cast<size_t>(controllers_[kind].base)];
    if (kind == kMemory) *values[kind] = read_memory_limit(base.fd(), base.version());
    if (kind == kCpu) *values[kind] = read_cpu_limit(base.fd(), base.version());
    if (kind == kPids) *values[kind] = read_pids_limit(base.fd());
  }
  return found;
}

// What a run does not have a group of its own in, it shares.
Result<void> Cgroups::join_shared(CgroupSlot& slot) {
  if (slot.leaf && asked(shared_, kMemory) != 0 && controllers_[kMemory].base == v2_base_ &&
      !slot.oom_events) {
    if (auto whole = write_small_file(slot.leaf->directory.get(), "memory.oom.group", "1"); !whole)
      return whole;
    slot.oom_events =
        Fd(::openat(slot.leaf->directory.get(), "memory.events", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!slot.oom_events) return os_error("cannot open `memory.events` of a cgroup", errno);
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    const int index = controllers_[kind].base;
    if (asked(shared_, kind) == 0 || index == v2_base_) continue;
    const CgroupBase* base = bases_[static_cast<size_t>(index)].get();
    bool joined = false;
    for (const auto& limit : slot.limits) joined = joined || limit.base == base;
    if (joined) continue;
    if (kind == kMemory) {
      if (auto done = join_shared_memory(slot, static_cast<size_t>(index)); !done) return done;
      continue;
    }
    CgroupLimit limit{base, "", {}, {}};
    limit.tasks = Fd(::openat(base->fd(), "tasks", O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!limit.tasks) return os_error("cannot open `tasks` of a cgroup", errno);
    slot.limits.push_back(std::move(limit));
  }
  return {};
}

// A group of its own within the shared one, used again, so that its counter tells whose memory ran out.
Result<void> Cgroups::join_shared_memory(CgroupSlot& slot, size_t base) {
  CgroupLimit limit;
  {
    const std::lock_guard lock(mutex_);
    if (!free_v1_.empty()) {
      limit = std::move(free_v1_.back());
      free_v1_.pop_back();
    }
  }
  if (limit.base == nullptr) {
    auto fresh = make_limit(*bases_[base]);
    if (!fresh) return fresh.error();
    limit = std::move(*fresh);
    limit.pooled = true;
    if (auto done = set_socket_memory_limit(limit.directory.get(), 1, shared_.memory_bytes); !done)
      return done;
  }
  slot.oom_events =
      Fd(::openat(limit.directory.get(), "memory.oom_control", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!slot.oom_events) return os_error("cannot open `memory.oom_control` of a cgroup", errno);
  slot.oom_before = raw_oom_kills(slot.oom_events.get());
  slot.oom_kills_one = true;
  slot.limits.push_back(std::move(limit));
  return {};
}

}  // namespace isogate
