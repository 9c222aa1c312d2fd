#include "gateway/supervisor/state_dir.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <thread>
#include <vector>

#include "lib/text.h"

namespace isogate::supervisor {
namespace {

constexpr int kOpenDir = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr std::chrono::milliseconds kLastChild{1000}, kTryAgain{10};  // flock(2) takes no deadline

struct Wanted {
  mode_t mode;
  uid_t uid;
  gid_t gid;
};

Error refused(const std::string& path, const std::string& what, const std::string& command) {
  return {ISOGATE_PERMISSION_DENIED, 0,
          "refusing to use `" + path + "`: " + what + "; correct it with: " + command};
}

Result<void> check(int dir, const std::string& path, const Wanted& wanted) {
  struct stat info {};
  if (::fstat(dir, &info) != 0) return os_error("cannot look at `" + path + "`", errno);
  if (info.st_uid != wanted.uid)
    return refused(path,
                   "it belongs to uid " + std::to_string(info.st_uid) + ", not " + std::to_string(wanted.uid),
                   "chown " + std::to_string(wanted.uid) + " '" + path + "'");
  if ((info.st_mode & 07777u) != wanted.mode)
    return refused(path, "its mode is " + octal_mode(info.st_mode) + ", not " + octal_mode(wanted.mode),
                   "chmod " + octal_mode(wanted.mode) + " '" + path + "'");
  return {};
}

Result<Fd> open_dir(int parent, const std::string& name, const std::string& path) {
  Fd dir(::openat(parent, name.c_str(), kOpenDir));
  if (dir) return dir;
  const int failed = errno;
  if (failed == ENOTDIR || failed == ELOOP) {
    const auto target = read_link(parent, name, "");
    if (!target) return refused(path, "it is no directory", "mv '" + path + "' '" + path + ".old'");
    return Error{ISOGATE_PERMISSION_DENIED, 0,
                 "refusing to use `" + path + "`: it is a symlink to `" + *target + "`; " +
                     (parent == AT_FDCWD ? "name that directory in its place (state_dir, workdir)"
                                         : "replace it by the directory itself")};
  }
  errno = failed;
  return os_error("cannot open the directory `" + path + "`", errno);
}

// Creates it with these rights, or checks that the existing one has exactly these.
Result<Fd> make_dir(int parent, const std::string& name, const std::string& path, const Wanted& wanted) {
  const bool made = ::mkdirat(parent, name.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return os_error("cannot make the directory `" + path + "`", errno);
  auto dir = open_dir(parent, name, path);
  if (!dir) return dir;
  if (made) {
    if (wanted.uid != ::geteuid() && ::fchown(dir->get(), wanted.uid, wanted.gid) != 0)
      return os_error("cannot give `" + path + "` to uid " + std::to_string(wanted.uid), errno);
    if (::fchmod(dir->get(), wanted.mode) != 0)
      return os_error("cannot set the mode of `" + path + "`", errno);
  }
  if (auto checked = check(dir->get(), path, wanted); !checked) return checked.error();
  return dir;
}

// As make_dir() checks what exists; nothing there is no mistake.
Result<void> check_existing(int parent, const std::string& name, const std::string& path,
                            const Wanted& wanted) {
  auto dir = open_dir(parent, name, path);
  if (!dir && dir.error().os_errno == ENOENT) return {};
  if (!dir) return dir.error();
  return check(dir->get(), path, wanted);
}

// What an operator set as `workdir` may be readable, but only its owner may write in it.
Result<void> check_workdir(int dir, const std::string& path, mode_t mode) {
  struct stat info {};
  if (::fstat(dir, &info) != 0) return os_error("cannot look at `" + path + "`", errno);
  if (info.st_uid != ::geteuid())
    return refused(path, "it belongs to uid " + std::to_string(info.st_uid),
                   "chown " + std::to_string(::geteuid()) + " '" + path + "'");
  if ((info.st_mode & 022u) != 0) return refused(path, "others may write in it", "chmod go-w '" + path + "'");
  if ((info.st_mode & mode) != mode)
    return refused(path, "sandboxes cannot be reached through mode " + octal_mode(info.st_mode),
                   "chmod " + octal_mode(mode) + " '" + path + "'");
  return {};
}

Result<Fd> prepare_workdir(const std::string& path, mode_t mode) {
  const bool made = ::mkdir(path.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return os_error("cannot make the workdir `" + path + "`", errno);
  auto dir = open_dir(AT_FDCWD, path, path);
  if (!dir) return dir;
  if (auto checked = check_workdir(dir->get(), path, mode); !checked) return checked.error();
  return dir;
}

// False: errno. A gateway that was killed may have left a child that has its locks until it runs its program.
bool lock_exclusively(int fd) {
  const auto until = std::chrono::steady_clock::now() + kLastChild;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kTryAgain);
  }
  return true;
}

// Two gateways would remove each other's files. A file system that knows no flock(2) of a directory (NFS) is
// used without.
Result<void> lock_sandboxes(int dir, const std::string& path) {
  if (lock_exclusively(dir) || errno != EWOULDBLOCK) return {};
  return Error{ISOGATE_ALREADY_EXISTS, 0,
               "the directory of sandboxes `" + path +
                   "` is in use by another gateway; give each gateway a `workdir` of its own"};
}

// The directories above it, "/" first.
std::vector<std::string> parents_of(const std::string& path) {
  std::vector<std::string> parents{"/"};
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    parents.push_back(path.substr(0, slash));
  return parents;
}

// A failure here is repeated below, with its reason. `passable`: whatever the umask says.
void make_parents(const std::string& path, bool passable) {
  for (const std::string& parent : parents_of(path))
    if (::mkdir(parent.c_str(), 0755) == 0 && passable) (void)::chmod(parent.c_str(), 0755);
}

// Tried by a child that has become that user: nothing else knows groups, ACLs and mounts.
[[noreturn]] void try_to_enter(const std::vector<std::string>& entries, uid_t uid, gid_t gid) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(gid, gid, gid) != 0 || ::setresuid(uid, uid, uid) != 0)
    ::_exit(0);
  for (size_t i = 0; i < entries.size() && i < 250; ++i)
    if (::open(entries[i].c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC) < 0 && errno == EACCES)
      ::_exit(static_cast<int>(i) + 1);
  ::_exit(0);
}

std::string user_name(uid_t uid) {
  const struct passwd* entry = ::getpwuid(uid);
  return entry == nullptr ? "uid " + std::to_string(uid) : std::string("user ") + entry->pw_name;
}

// The front does not run as root, and must reach its part.
Result<void> check_passage(const std::string& path, const Accounts& accounts) {
  if (!accounts.root) return {};
  const std::vector<std::string> parents = parents_of(path);
  std::vector<std::string> entries;  // `.` of a directory needs the right to search that directory
  for (const std::string& parent : parents) entries.push_back(parent + "/.");
  const pid_t child = ::fork();
  if (child < 0) return os_error("cannot start a process to check the way to `" + path + "`", errno);
  if (child == 0) try_to_enter(entries, accounts.front_uid, accounts.front_gid);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const size_t closed = WIFEXITED(status) ? static_cast<size_t>(WEXITSTATUS(status)) : 0;
  if (closed == 0 || closed > parents.size()) return {};
  const std::string& parent = parents[closed - 1];
  return Error{ISOGATE_PERMISSION_DENIED, 0,
               user_name(accounts.front_uid) + ", which the front runs as, cannot enter `" + parent +
                   "` above the state directory `" + path +
                   "`; choose another place with --state-dir, or let others pass through with: chmod o+x '" +
                   parent + "'"};
}

Result<Fd> take_lock(int root, const std::string& path) {
  Fd lock(::openat(root, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock) return os_error("cannot open `" + path + "/lock`", errno);
  if (!lock_exclusively(lock.get())) {
    if (errno != EWOULDBLOCK) return os_error("cannot lock `" + path + "/lock`", errno);
    std::array<char, 16> holder{};
    const ssize_t n = ::pread(lock.get(), holder.data(), holder.size() - 1, 0);
    const std::string_view text(holder.data());
    const std::string pid(n > 0 ? text.substr(0, text.find('\n')) : "?");
    return Error{ISOGATE_ALREADY_EXISTS, 0,
                 "the state directory `" + path + "` is in use by another gateway (pid " + pid +
                     "); stop that one, or give this one its own with --state-dir"};
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), pid.data(), pid.size(), 0) < 0)
    return os_error("cannot write `" + path + "/lock`", errno);
  return lock;
}

// Without a slash at the end.
Result<std::string> path_of(const Config& config) {
  std::string path = config.state_dir;
  if (!path.starts_with('/')) return invalid("state_dir `" + path + "` is not an absolute path");
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

mode_t passable_mode(const Accounts& accounts) { return accounts.root ? 0711 : 0700; }

struct Part {
  const char* name;
  Wanted wanted;
};

std::array<Part, 4> parts_of(const Accounts& accounts) {
  const Wanted secret{0700, ::geteuid(), ::getegid()};
  return {Part{"front", {0700, accounts.front_uid, accounts.front_gid}},
          Part{"sandboxes", {passable_mode(accounts), ::geteuid(), ::getegid()}}, Part{"uids", secret},
          Part{"run", secret}};
}

// Below the directory that was checked, whatever its path leads to by now.
void remove_tree(int root, const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all("/proc/self/fd/" + std::to_string(root) + "/" + path, ignored);
}

}  // namespace

Result<StateDir> prepare_state_dir(const Config& config, const Accounts& accounts) {
  auto path = path_of(config);
  if (!path) return path.error();
  StateDir state;
  state.path = std::move(*path);
  const mode_t passable = passable_mode(accounts);
  make_parents(state.path, accounts.root);
  if (auto passable_way = check_passage(state.path, accounts); !passable_way) return passable_way.error();
  auto root = make_dir(AT_FDCWD, state.path, state.path, {passable, ::geteuid(), ::getegid()});
  if (!root) return root.error();
  state.root = std::move(*root);
  auto lock = take_lock(state.root.get(), state.path);
  if (!lock) return lock.error();
  state.lock = std::move(*lock);
  state.uids = state.path + "/uids";
  state.run = state.path + "/run";
  state.sandboxes = config.workdir.empty() ? state.path + "/sandboxes" : config.workdir;
  remove_tree(state.root.get(), "run");
  for (const Part& part : parts_of(accounts)) {
    auto made = make_dir(state.root.get(), part.name, state.path + "/" + part.name, part.wanted);
    if (!made) return made.error();
    if (std::string_view(part.name) == "sandboxes") state.sandboxes_lock = std::move(*made);
  }
  if (!config.workdir.empty()) {
    auto prepared = prepare_workdir(config.workdir, passable);
    if (!prepared) return prepared.error();
    state.sandboxes_lock = std::move(*prepared);
  }
  auto locked = lock_sandboxes(state.sandboxes_lock.get(), state.sandboxes);
  if (!locked) return locked.error();
  return state;
}

Result<void> check_state_dir(const Config& config, const Accounts& accounts) {
  const auto path = path_of(config);
  if (!path) return path.error();
  if (auto passable_way = check_passage(*path, accounts); !passable_way) return passable_way;
  const mode_t passable = passable_mode(accounts);
  if (auto root = check_existing(AT_FDCWD, *path, *path, {passable, ::geteuid(), ::getegid()}); !root)
    return root;
  for (const Part& part : parts_of(accounts)) {
    if (std::string_view(part.name) == "run") continue;  // a start removes it first
    const std::string place = *path + "/" + part.name;
    if (auto checked = check_existing(AT_FDCWD, place, place, part.wanted); !checked) return checked;
  }
  if (config.workdir.empty()) return {};
  auto workdir = open_dir(AT_FDCWD, config.workdir, config.workdir);
  if (!workdir && workdir.error().os_errno == ENOENT) return {};
  if (!workdir) return workdir.error();
  return check_workdir(workdir->get(), config.workdir, passable);
}

Result<std::string> make_plugin_copy_dir(const StateDir& state, const std::string& name) {
  Fd run(::openat(state.root.get(), "run", kOpenDir));
  if (!run) return os_error("cannot open `" + state.run + "`", errno);
  remove_tree(run.get(), name);
  const Wanted wanted{0700, ::geteuid(), ::getegid()};
  auto dir = make_dir(run.get(), name, state.run + "/" + name, wanted);
  if (!dir) return dir.error();
  return state.run + "/" + name;
}

void remove_plugin_copy_dir(const StateDir& state, const std::string& name) {
  remove_tree(state.root.get(), "run/" + name);
}

}  // namespace isogate::supervisor
