#include "runner/agent/place.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "runner/agent/calls/kept_exec.h"
#include "runner/agent/leftovers.h"
#include "runner/agent/names.h"
#include "runner/cgroup/cgroup_detect.h"
#include "runner/exec/tree/reaper.h"
#include "runner/files/workspace_path.h"
#include "runner/files/workspace_resolve.h"

namespace isogate::agent {
namespace {

// The file that counts the kernel's out-of-memory kills; empty if there is none.
Fd open_memory_events() {
  for (const CgroupHierarchy& hierarchy : detect_cgroups()) {
    if (hierarchy.version == 1 && !hierarchy.has("memory")) continue;
    const std::string name = hierarchy.version == 1 ? "/memory.oom_control" : "/memory.events";
    Fd file(::openat(AT_FDCWD, (hierarchy.directory + name).c_str(), O_RDONLY | O_CLOEXEC));
    if (file) return file;
  }
  return Fd();
}

constexpr int kReservedDescriptors = 64;

bool is_alias(std::string_view cwd) { return cwd == "/workspace" || cwd.starts_with("/workspace/"); }

// Whether the file system contains only the workspace, and is no larger than the limit. In a container the
// files that its runtime adds to /etc are on the machine's own disk.
bool is_bound(int workspace, const Options& options) {
  if (options.disk_bound == DiskBound::counted) return false;
  constexpr uint64_t kBlock = 4096;  // to which a limit is rounded
  struct statvfs info {};
  uint64_t size = 0;
  if (::fstatvfs(workspace, &info) != 0 || info.f_blocks == 0 || info.f_frsize == 0 ||
      __builtin_mul_overflow(info.f_blocks, info.f_frsize, &size) || size - 1 >= options.disk_limit + kBlock)
    return false;
  if (options.disk_bound == DiskBound::kernel) return true;
  struct stat own {};
  if (::fstat(workspace, &own) != 0) return false;
  for (const char* machine : {"/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}) {
    struct stat of_machine {};
    if (::stat(machine, &of_machine) == 0 && of_machine.st_dev == own.st_dev) return false;
  }
  return true;
}

}  // namespace

Place::Place() : kept_(std::make_unique<KeptExecs>()) {}
Place::~Place() = default;

Result<void> Place::open_disk(const Options& options) {
  if (options.disk_limit == 0) return {};
  Fd directory(
      ::openat(AT_FDCWD, options.workspace.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  // Its owner has removed its own access: then only the gateway's own writes are counted.
  if (!directory && errno == EACCES)
    directory =
        Fd(::openat(AT_FDCWD, options.workspace.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return os_error("cannot open the workspace `" + options.workspace + "`", errno);
  const bool bound = is_bound(directory.get(), options);
  if (bound) disk_enforced_ = options.disk_limit;
  disk_ = bound ? file_system_quota(std::move(directory))
                : counter_.quota(std::move(directory), options.disk_limit, false);
  return {};
}

Result<void> Place::open(const Options& options) {
  Fd directory(::openat(AT_FDCWD, options.workspace.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return os_error("cannot open the workspace `" + options.workspace + "`", errno);
  root_ = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  Fd view(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root_ || !view) return os_error("cannot open the root directory", errno);
  for (const auto& [prefix, path] : options.shared) {
    Fd shared(::openat(AT_FDCWD, path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!shared) return os_error("cannot open the shared directory `" + path + "`", errno);
    shared_.push_back({prefix, std::move(shared)});
  }
  if (auto bound = open_disk(options); !bound) return bound;
  workspace_ = Workspace::at(std::move(directory), &shared_, disk_);
  workspace_->set_view(std::move(view));
  workspace_->set_own_path(options.workspace);
  surroundings_ = {options.workspace, options.user_name, options.shell, options.toolchain};
  if (surroundings_.user.empty()) surroundings_.user = own_name();
  memory_events_ = open_memory_events();
  scratch_ = options.scratch;
  RunnerOptions alone;
  alone.use_cgroups = false;
  alone.nice = 19;
  runner_ = Runner::make(std::move(alone));
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return os_error("cannot read the limit on open files", errno);
  most_descriptors_ = static_cast<int>(std::min<rlim_t>(files.rlim_cur, INT_MAX)) - kReservedDescriptors;
  return {};
}

Result<void> Place::check_user(std::string_view user) const {
  const std::string uid = std::to_string(::geteuid());
  if (user.empty() || user == surroundings_.user || user == uid) return {};
  return unsupported("cannot be " + quote_path(user) + " here: everything in this sandbox runs as " +
                     quote_path(surroundings_.user) + ", uid " + uid);
}

Result<Fd> Place::directory(std::string_view cwd) const {
  if (cwd.empty()) return Fd();
  if (cwd.front() != '/' || is_alias(cwd)) return workspace_->directory(cwd);
  const auto path = parse_path(cwd, ISOGATE_SCOPE_SANDBOX);
  if (!path) return path.error();
  Tree tree;
  tree.fd = root_.get();
  tree.confined = false;
  Fd found(resolve(tree, path->path(), O_PATH | O_DIRECTORY));
  if (found) return found;
  Error error = resolve_error("cannot use " + quote_path(cwd) + " as working directory", tree, found.get());
  error.status = ISOGATE_INVALID_ARGUMENT;
  return error;
}

bool Place::has_terminals() const { return (runner_->abilities().capabilities & ISOGATE_CAP_PTY) != 0; }

uint64_t Place::memory_kills() const { return memory_events_ ? raw_oom_kills(memory_events_.get()) : 0; }

void Place::tidy() {
  if (!scratch_.empty()) orphans_.while_nothing_runs([this] { remove_leftovers(scratch_); });
}

}  // namespace isogate::agent
