// The mount namespaces that programs get copies of: one base for the backend, built once from this host, and
// from it one template for each sandbox, at a cost that does not depend on this host's mounts.
//
// A template holds: / (tmpfs, read-only); /usr and the directories beside it, from the host's root or from
// the operator's `root` (read-only); an /etc of few files (etc.h); /dev with six devices and its own
// /dev/pts; the shared directories at /mnt/<prefix>; the toolchain at its own path; and, for the sandbox
// alone, /workspace, /tmp (a tmpfs; /var/tmp leads there) and /etc/isogate. /proc and /dev/shm are empty:
// each run mounts its own. No /sys, no cgroups.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "lib/fd.h"
#include "runner/files/workspace.h"

namespace isogate::ns {

// The directories that a sandbox would see of the operator's `root`, as paths of this host.
std::vector<std::string> shown_of(const std::string& root);

// Whether a path belongs to the system that a sandbox sees, this host's or that of the operator's `root`:
// then it exists there or not, and is not mounted separately.
bool is_of_system(const std::string& path, bool own_root);

struct BaseOptions {
  std::string scratch;  // any directory of ours: the new root is mounted there for a moment
  const std::vector<SharedDir>* shared_dirs = nullptr;
  std::vector<std::string> toolchain;  // directories
  std::string root;                    // where the system is; empty: this host's own
  bool rootless = false;               // in a user namespace: devices are the host's own, mounted
};

struct Base {
  Fd user;  // empty: this process's own
  Fd mounts;
  Fd proc;                         // this host's
  std::pair<dev_t, ino_t> root{};  // what its / is
};
Result<Base> make_base(const BaseOptions& options);

struct TemplateParts {
  int workspace, identity;  // O_PATH directories on this host; -1: an empty one, for a trial
  std::string tmp;          // options of the tmpfs at /tmp
};
struct Template {
  Fd mounts, network;
  Fd root;      // O_PATH, for file calls in the sandbox's own view
  Fd landlock;  // empty: none
};
Result<Template> make_template(const Base& base, const TemplateParts& parts);

}  // namespace isogate::ns
