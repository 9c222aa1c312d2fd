// Which cgroup hierarchies this process is in, per controller: v1, v2 and the hybrid of both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isogate {

struct CgroupHierarchy {
  int version = 0;                       // 1 or 2
  std::string directory;                 // this process's own cgroup, absolute
  bool at_mount_root = false;            // directory is where the hierarchy is mounted
  std::vector<std::string> controllers;  // of v1; detect_cgroups() reads v2's from directory_of_groups()

  [[nodiscard]] bool has(std::string_view controller) const;
};

// Pure: the texts of /proc/self/mountinfo and /proc/self/cgroup. A hierarchy whose mount does not reach this
// process's own cgroup is left out.
std::vector<CgroupHierarchy> parse_cgroups(std::string_view mountinfo, std::string_view self);

std::vector<CgroupHierarchy> detect_cgroups();

// Whether systemd has marked that cgroup2 as delegated (Delegate=yes).
bool is_delegated(const std::string& directory);
// Below which this process may make groups: its own cgroup, or the delegated one above, where
// leave_delegated_cgroup() or systemd's DelegateSubgroup= has put it below: then only groups there, beside
// its own, get controllers.
std::string directory_of_groups(const CgroupHierarchy& hierarchy);

// A path of mountinfo, which writes space, tab, newline and backslash as \ooo.
std::string unescape(std::string_view text);

// The whole of a small file; empty where it cannot be read, or has more than 64 MiB.
std::string read_small_file(int directory_fd, const std::string& name);

}  // namespace isogate
