// The directory of one Runner below this process's own cgroup, in one hierarchy, and the remains of
// dead Runners beside it.
//
// Its name is <group>.<pid>.<n>. Its maker, or the maker's watcher, holds flock(LOCK_EX) on it while it
// lives; a base that can be locked belongs to a dead Runner and is swept, whatever its pid namespace.
#pragma once

#include <memory>
#include <string>

#include "lib/fd.h"
#include "runner/cgroup/cgroup_detect.h"

namespace isogate {

class CgroupBase {
 public:
  // Sweeps the bases of dead Runners first: kills what runs in them (v2) and removes them.
  static Result<std::unique_ptr<CgroupBase>> make(const CgroupHierarchy& hierarchy, const std::string& group);
  // A group of that name below another base, as a base; that one outlives it.
  static Result<std::unique_ptr<CgroupBase>> nest(const CgroupBase& above, const std::string& name);
  ~CgroupBase();  // kills what is left in it, and removes it
  CgroupBase(const CgroupBase&) = delete;
  CgroupBase& operator=(const CgroupBase&) = delete;

  [[nodiscard]] int version() const { return version_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int parent_fd() const { return above_ != nullptr ? above_->fd() : parent_.get(); }
  [[nodiscard]] int fd() const { return directory_.get(); }
  [[nodiscard]] int kill_fd() const { return kill_.get(); }  // -1 in v1

  // Lets groups below the base use a v2 controller. Nothing is changed where the cgroup above has processes,
  // and is not the root: the kernel refuses some controllers there, and with the others no process could
  // start in a group below.
  Result<void> enable(const std::string& controller) const;

  Result<Fd> make_group(const std::string& name) const;
  // False: something is still in it.
  [[nodiscard]] bool remove_group(const std::string& name) const;

 private:
  CgroupBase() = default;
  int version_ = 0;
  std::string name_;
  const CgroupBase* above_ = nullptr;  // of nest()
  Fd parent_, directory_, kill_;       // parent_: without above_
};

// In the reason why groups below a cgroup of this process get no controllers.
inline constexpr const char* kProcessesAbove = "processes live in the cgroup above";

// For a gateway, before its first child: if this process is alone in a cgroup2 that was delegated to it
// (Delegate=yes in systemd), it moves to the group `gateway` below, so that groups beside that one get
// controllers. OK also where there is nothing to do.
Result<void> leave_delegated_cgroup();

Result<void> write_small_file(int directory_fd, const std::string& name, const std::string& text);

}  // namespace isogate
