#include "plugins/namespace/template.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lib/text.h"
#include "plugins/namespace/etc.h"
#include "plugins/namespace/landlock.h"
#include "runner/exec/apart.h"

namespace isogate::ns {
namespace {

// Directly below / of the host: links are recreated, directories mounted read-only.
constexpr const char* kSystem[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"};
// Of a root of the operator's own as well: nothing in it is this host's.
constexpr const char* kMoreOfRoot[] = {"opt", "srv", "var/lib"};
constexpr const char* kDirectories[] = {"dev",  "etc", "home", "mnt", "opt",
                                        "proc", "run", "tmp",  "var", "workspace"};

constexpr int kTerminals = 16;  // that programs of a sandbox open; the kernel allows 3,072 for all

struct Device {
  const char* name;
  unsigned major, minor;
};
constexpr Device kDevices[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                               {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

struct Link {
  const char *name, *target;
};
constexpr Link kDeviceLinks[] = {{"fd", "/proc/self/fd"},
                                 {"stdin", "/proc/self/fd/0"},
                                 {"stdout", "/proc/self/fd/1"},
                                 {"stderr", "/proc/self/fd/2"},
                                 {"ptmx", "pts/ptmx"}};

// The few mount calls that templates are built with, on descriptors; see open_tree(2), move_mount(2),
// mount_setattr(2) (Linux 5.12). In the namespaces of the caller: run_apart().
enum class Access { kReadOnly, kReadWrite, kDevice };  // kDevice: read-only, and its device nodes work

int call(long result) { return static_cast<int>(result); }

Result<void> configure(int context, const std::string& options) {
  for (std::string_view rest = options; !rest.empty();) {
    const std::string each(next_part(rest, ','));
    const size_t equals = each.find('=');
    const std::string name = each.substr(0, equals);
    const bool flag = equals == std::string::npos;
    const std::string value = flag ? "" : each.substr(equals + 1);
    if (::syscall(SYS_fsconfig, context, flag ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING, name.c_str(),
                  flag ? nullptr : value.c_str(), 0) != 0)
      return os_error("cannot set `" + each + "` of a file system", errno);
  }
  if (::syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return os_error("cannot make a file system", errno);
  return {};
}

// A detached copy of the mount that `fd` is in, from `fd` downwards, with `recursive` including the
// mounts below it. Private, nosuid, nodev; `what` is for the message.
Result<Fd> clone_mount(int fd, Access access, bool recursive, const std::string& what) {
  const unsigned deep = recursive ? AT_RECURSIVE : 0u;
  Fd mount(
      call(::syscall(SYS_open_tree, fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | deep)));
  if (!mount) return os_error("cannot copy the mount of " + what, errno);
  mount_attr attributes = {};
  attributes.attr_set = MOUNT_ATTR_NOSUID;
  if (access != Access::kDevice) attributes.attr_set |= MOUNT_ATTR_NODEV;
  if (access != Access::kReadWrite) attributes.attr_set |= MOUNT_ATTR_RDONLY;
  attributes.propagation = 1UL << 18;  // MS_PRIVATE
  if (::syscall(SYS_mount_setattr, mount.get(), "", AT_EMPTY_PATH | deep, &attributes, sizeof attributes) !=
      0)
    return os_error("cannot restrict the mount of " + what, errno);
  return mount;
}

// The same file in the mount namespace of the caller. ISOGATE_INTERNAL if another file is there.
Result<Fd> find_here(int fd, const std::string& what) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const auto path = read_link(AT_FDCWD, link, "cannot find the path of " + what);
  if (!path) return path.error();
  Fd here(::open(path->c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
  struct stat one {};
  struct stat two {};
  if (!here || ::fstat(here.get(), &one) != 0 || ::fstat(fd, &two) != 0)
    return os_error("cannot open " + what + " again", errno);
  if (one.st_dev != two.st_dev || one.st_ino != two.st_ino)
    return Error{ISOGATE_INTERNAL, 0, "another file is in the place of " + what};
  return here;
}

// A fresh file system, detached. `options`: name=value, with commas between.
Result<Fd> fresh_mount(const char* type, const std::string& options, uint64_t attributes) {
  const Fd context(call(::syscall(SYS_fsopen, type, FSOPEN_CLOEXEC)));
  if (!context) return os_error(std::string("cannot open file system type `") + type + "`", errno);
  if (auto done = configure(context.get(), options); !done) return done.error();
  Fd mount(call(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, attributes)));
  if (!mount) return os_error(std::string("cannot mount a `") + type + "`", errno);
  return mount;
}

// Puts a detached mount on a directory or file.
Result<void> attach(const Fd& mount, int directory, const std::string& path, const std::string& what) {
  const Fd target(::openat(directory, path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
  if (!target) return os_error("cannot find the place of " + what, errno);
  if (::syscall(SYS_move_mount, mount.get(), "", target.get(), "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    return os_error("cannot mount " + what, errno);
  return {};
}

Result<void> make_directory(int parent, const std::string& name) {
  if (::mkdirat(parent, name.c_str(), 0755) != 0 && errno != EEXIST)
    return os_error("cannot make `" + name + "` in a sandbox's root", errno);
  return {};
}

// All of a path without a slash in front.
Result<void> make_path(int root, const std::string& path) {
  for (size_t slash = path.find('/');; slash = path.find('/', slash + 1)) {
    if (auto made = make_directory(root, path.substr(0, slash)); !made) return made;
    if (slash == std::string::npos) return {};
  }
}

Result<void> set_read_only(int fd, const char* path, unsigned flags) {
  mount_attr attributes = {};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  if (::syscall(SYS_mount_setattr, fd, path, flags, &attributes, sizeof attributes) != 0)
    return os_error("cannot make a mount of the sandbox read-only", errno);
  return {};
}

// The entry itself; no link on the way to it is followed. Empty: there is none.
Fd open_system(const std::string& from, const char* name) {
  const Fd top(::open(from.empty() ? "/" : from.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  open_how how = {};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  return Fd(static_cast<int>(::syscall(SYS_openat2, top.get(), name, &how, sizeof how)));
}

// Unchanged `from` there: `bin` is usually a link to usr/bin.
Result<void> add_system(int root, const std::string& from, const char* name, bool rootless) {
  const std::string path = from + "/" + name;
  const Fd source = open_system(from, name);
  struct stat info {};
  if (!source || ::fstat(source.get(), &info) != 0) return {};
  if (S_ISLNK(info.st_mode)) {
    const auto target = read_link(source.get(), "", "cannot read the link `" + path + "`");
    if (!target) return target.error();
    if (::symlinkat(target->c_str(), root, name) != 0) return os_error("cannot make `" + path + "`", errno);
    return {};
  }
  if (!S_ISDIR(info.st_mode)) return {};
  if (auto made = make_path(root, name); !made) return made;
  auto mount = clone_mount(source.get(), Access::kReadOnly, from.empty() || rootless, "`" + path + "`");
  if (!mount) return mount.error();
  return attach(*mount, root, name, "`" + path + "`");
}

Result<void> make_device(int dev, const Device& device) {
  struct stat made {};
  if (::mknodat(dev, device.name, S_IFCHR | 0666, makedev(device.major, device.minor)) != 0 ||
      ::fchmodat(dev, device.name, 0666, 0) != 0 ||
      ::fstatat(dev, device.name, &made, AT_SYMLINK_NOFOLLOW) != 0)
    return os_error(std::string("cannot make the sandbox's /dev/") + device.name, errno);
  if (S_ISCHR(made.st_mode) && made.st_rdev == makedev(device.major, device.minor)) return {};
  return Error{ISOGATE_INTERNAL, 0, std::string("the sandbox's /dev/") + device.name + " is another device"};
}

// Checked on this host, then brought in: who is not root makes no device.
Result<void> bring_device(int dev, const Device& device) {
  const Fd source(::open((std::string("/dev/") + device.name).c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!source || ::fstat(source.get(), &info) != 0 || !S_ISCHR(info.st_mode) ||
      info.st_rdev != makedev(device.major, device.minor))
    return Error{ISOGATE_INTERNAL, 0, std::string("this host's /dev/") + device.name + " is not that device"};
  const std::string what = std::string("/dev/") + device.name;
  const Fd place(::openat(dev, device.name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!place) return os_error("cannot make the sandbox's " + what, errno);
  auto mount = clone_mount(source.get(), Access::kDevice, false, what);
  if (!mount) return mount.error();
  return attach(*mount, dev, device.name, what);
}

// No `nodev` here, and nobody may add to it.
Result<void> add_dev(int root, bool rootless) {
  auto dev = fresh_mount("tmpfs", "size=64k,nr_inodes=64,mode=755", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
  if (!dev) return dev.error();
  if (rootless) {
    if (auto attached = attach(*dev, root, "dev", "the sandbox's /dev"); !attached) return attached;
  }
  for (const Device& device : kDevices) {
    auto made = rootless ? bring_device(dev->get(), device) : make_device(dev->get(), device);
    if (!made) return made;
  }
  for (const Link& link : kDeviceLinks) {
    if (::symlinkat(link.target, dev->get(), link.name) != 0)
      return os_error(std::string("cannot make the sandbox's /dev/") + link.name, errno);
  }
  for (const char* name : {"pts", "shm"}) {
    if (auto made = make_directory(dev->get(), name); !made) return made;
  }
  if (auto closed = set_read_only(dev->get(), "", AT_EMPTY_PATH); !closed || rootless) return closed;
  return attach(*dev, root, "dev", "the sandbox's /dev");
}

Result<void> add_etc(int root, const std::string& from) {
  const Fd etc(::openat(root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!etc) return os_error("cannot open the sandbox's /etc", errno);
  return fill_etc(etc.get(), from);
}

struct Brought {
  Fd mount;
  std::string path, what;  // below the root
};

// A copy of what `source` refers to: of this process's own mount namespace, or, where that is a fresh copy in
// a user namespace, of what stands in the same place there.
Result<Fd> copy_of(int source, bool rootless, Access access, const std::string& what) {
  if (!rootless) return clone_mount(source, access, false, what);
  auto here = find_here(source, what);
  if (!here) return here;
  return clone_mount(here->get(), access, true, what);
}

Result<void> bring(int source, bool rootless, std::string path, std::string what, std::vector<Brought>& all) {
  auto mount = copy_of(source, rootless, Access::kReadOnly, what);
  if (!mount) return mount.error();
  all.push_back({std::move(*mount), std::move(path), std::move(what)});
  return {};
}

// What the operator wants inside, copied while this process still is where it lies.
Result<std::vector<Brought>> operators_mounts(const BaseOptions& options) {
  std::vector<Brought> all;
  for (const SharedDir& each : *options.shared_dirs) {
    auto done = bring(each.root.get(), options.rootless, "mnt/" + each.prefix,
                      "the shared directory `" + each.prefix + "`", all);
    if (!done) return done.error();
  }
  for (const std::string& path : options.toolchain) {
    if (is_of_system(path, !options.root.empty())) continue;
    const Fd source(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!source) return os_error("cannot open `" + path + "` of toolchain_path", errno);
    if (auto done =
            bring(source.get(), options.rootless, path.substr(1), "`" + path + "` of toolchain_path", all);
        !done)
      return done.error();
  }
  return all;
}

Result<void> add_operators(int root, const std::vector<Brought>& mounts) {
  for (const Brought& each : mounts) {
    if (auto made = make_path(root, each.path); !made) return made;
    if (auto attached = attach(each.mount, root, each.path, each.what); !attached) return attached;
  }
  return {};
}

// In a user namespace the kernel mounts a /proc only where another one is to be seen whole. Each run mounts
// its own on top of this one, before any tenant's program is there.
Result<void> add_proc(int root) {
  const Fd source(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!source) return os_error("cannot open /proc", errno);
  auto mount = clone_mount(source.get(), Access::kReadWrite, true, "/proc");
  if (!mount) return mount.error();
  if (auto attached = attach(*mount, root, "proc", "/proc"); !attached) return attached;
  auto cover = fresh_mount("tmpfs", "size=4k,nr_inodes=2,mode=555", MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY);
  if (!cover) return cover.error();
  return attach(*cover, root, "proc", "the cover of /proc");
}

// A home by the name that programs made for other sandboxes expect, unless the operator has one there.
Result<void> add_home(int root) {
  if (::symlinkat("../workspace", root, "home/user") != 0 && errno != EEXIST)
    return os_error("cannot make the sandbox's /home/user", errno);
  return {};
}

Result<void> fill_root(int root, const BaseOptions& options, const std::vector<Brought>& mounts) {
  for (const char* name : kDirectories) {
    if (auto made = make_directory(root, name); !made) return made;
  }
  if (::symlinkat("../tmp", root, "var/tmp") != 0)
    return os_error("cannot make the sandbox's /var/tmp", errno);
  for (const char* name : kSystem) {
    if (auto added = add_system(root, options.root, name, options.rootless); !added) return added;
  }
  for (const char* name : kMoreOfRoot) {
    if (options.root.empty()) break;
    if (auto added = add_system(root, options.root, name, options.rootless); !added) return added;
  }
  if (auto added = add_dev(root, options.rootless); !added) return added;
  if (auto added = add_etc(root, options.root); !added) return added;
  if (options.rootless) {
    if (auto added = add_proc(root); !added) return added;
  }
  if (auto added = add_operators(root, mounts); !added) return added;
  return add_home(root);
}

// The root of the process becomes `root`, a mount point; the host's mounts go from this namespace.
Result<void> change_root(int root) {
  if (::fchdir(root) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 || ::umount2(".", MNT_DETACH) != 0 ||
      ::chdir("/") != 0)
    return os_error("cannot change the root of a sandbox", errno);
  return set_read_only(AT_FDCWD, "/", 0);
}

Result<void> enter_user(const Base& base) {
  if (!base.user || ::setns(base.user.get(), CLONE_NEWUSER) == 0) return {};
  return os_error("cannot enter the user namespace", errno);
}

Error in_a_chroot() {
  return {ISOGATE_UNAVAILABLE, 0,
          "the gateway runs in a chroot, where no mount namespace has a root of its own: start it outside, "
          "or in a "
          "container, or change the root by pivot_root"};
}

Result<void> leave_mounts() {
  if (::unshare(CLONE_NEWNS) != 0) return os_error("cannot make a mount namespace", errno);
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) return {};
  if (errno == EINVAL) return in_a_chroot();
  return os_error("cannot make a mount namespace private", errno);
}

Result<std::pair<dev_t, ino_t>> present_root() {
  struct stat info {};
  if (::stat("/", &info) != 0) return os_error("cannot look at the root of a sandbox", errno);
  return std::pair(info.st_dev, info.st_ino);
}

Result<void> build_base(const BaseOptions& options, Base& base) {
  if (auto entered = enter_user(base); !entered) return entered;
  if (options.rootless) {
    if (auto left = leave_mounts(); !left) return left;
  }
  const auto mounts = operators_mounts(options);
  if (!mounts) return mounts.error();
  if (!options.rootless) {
    if (auto left = leave_mounts(); !left) return left;
  }
  base.mounts = Fd(::openat(base.proc.get(), "self/ns/mnt", O_RDONLY | O_CLOEXEC));
  if (!base.mounts) return os_error("cannot open a mount namespace", errno);
  auto root_mount =
      fresh_mount("tmpfs", "size=16m,nr_inodes=16384,mode=755", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  if (!root_mount) return root_mount.error();
  if (auto attached = attach(*root_mount, AT_FDCWD, options.scratch, "a sandbox's root"); !attached)
    return attached;
  if (auto filled = fill_root(root_mount->get(), options, *mounts); !filled) return filled;
  if (auto changed = change_root(root_mount->get()); !changed) return changed;
  const auto root = present_root();
  if (!root) return root.error();
  base.root = *root;
  return {};
}

// In a chroot pivot_root(2) changes the root of this process and not that of the namespace: who enters the
// namespace then stands in this host's.
Result<void> enter_base(const Base& base) {
  if (::setns(base.mounts.get(), CLONE_NEWNS) != 0 || ::unshare(CLONE_NEWNS) != 0)
    return os_error("cannot copy the base mount namespace", errno);
  const auto root = present_root();
  if (!root) return root.error();
  if (*root != base.root) return in_a_chroot();
  return {};
}

Result<void> raise_loopback() {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  if (!socket || ::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    return os_error("cannot bring up the loopback of a network namespace", errno);
  return {};
}

// What a connection receives before it is accepted counts to no memory limit, only to the one that all TCP of
// this host has. Without effect in a user namespace, and on a kernel without these settings.
void bound_unaccepted(const Base& base) {
  const std::pair<const char*, std::string_view> settings[] = {
      {"sys/net/core/somaxconn", "128"}, {"sys/net/ipv4/tcp_rmem", "4096 65536 131072"}};
  for (const auto& [name, value] : settings) {
    const Fd file(::openat(base.proc.get(), name, O_WRONLY | O_CLOEXEC));
    [[maybe_unused]] const bool written = file && write_all(file.get(), value);
  }
}

Result<void> build_network(const Base& base, Template& result) {
  if (::unshare(CLONE_NEWNET) != 0) return os_error("cannot make a network namespace", errno);
  result.network = Fd(::openat(base.proc.get(), "self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!result.network) return os_error("cannot open a network namespace", errno);
  bound_unaccepted(base);
  return raise_loopback();
}

struct OwnMount {
  int source;
  const char* path;
  Access access;
  const char* options = "size=64k,nr_inodes=16,mode=755";  // of a tmpfs, where there is no source
};

Result<void> build_template(const Base& base, const TemplateParts& parts, Template& result) {
  const OwnMount own[] = {{parts.workspace, "/workspace", Access::kReadWrite},
                          {-1, "/tmp", Access::kReadWrite, parts.tmp.c_str()},
                          {parts.identity, "/etc/isogate", Access::kReadOnly}};
  const bool rootless = static_cast<bool>(base.user);
  if (auto entered = enter_user(base); !entered) return entered;
  if (rootless) {
    if (auto left = leave_mounts(); !left) return left;
  }
  std::vector<Fd> mounts;  // copied while this process is still where they are
  for (const OwnMount& each : own) {
    auto mount = each.source < 0
                     ? fresh_mount("tmpfs", each.options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
                     : copy_of(each.source, rootless, each.access, std::string("the sandbox's ") + each.path);
    if (!mount) return mount.error();
    mounts.push_back(std::move(*mount));
  }
  if (auto entered = enter_base(base); !entered) return entered;
  result.mounts = Fd(::openat(base.proc.get(), "self/ns/mnt", O_RDONLY | O_CLOEXEC));
  if (!result.mounts) return os_error("cannot open a mount namespace", errno);
  for (size_t i = 0; i < mounts.size(); ++i) {
    if (auto attached = attach(mounts[i], AT_FDCWD, own[i].path, std::string("the sandbox's ") + own[i].path);
        !attached)
      return attached;
  }
  auto terminals = fresh_mount("devpts", "mode=620,ptmxmode=666,max=" + std::to_string(kTerminals),
                               MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
  if (!terminals) return terminals.error();
  if (auto attached = attach(*terminals, AT_FDCWD, "/dev/pts", "the sandbox's /dev/pts"); !attached)
    return attached;
  result.root = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!result.root) return os_error("cannot open a sandbox's root", errno);
  auto ruleset = make_ruleset();
  if (!ruleset) return ruleset.error();
  result.landlock = std::move(*ruleset);
  return build_network(base, result);
}

}  // namespace

std::vector<std::string> shown_of(const std::string& root) {
  std::vector<std::string> paths;
  const auto look = [&](const char* name) {
    const Fd entry = open_system(root, name);
    struct stat info {};
    if (entry && ::fstat(entry.get(), &info) == 0 && S_ISDIR(info.st_mode))
      paths.push_back(root + "/" + name);
  };
  for (const char* name : kSystem) look(name);
  for (const char* name : kMoreOfRoot) look(name);
  return paths;
}

bool is_of_system(const std::string& path, bool own_root) {
  const auto in = [&](const char* name) { return (path + "/").starts_with("/" + std::string(name) + "/"); };
  return std::any_of(std::begin(kSystem), std::end(kSystem), in) ||
         (own_root && std::any_of(std::begin(kMoreOfRoot), std::end(kMoreOfRoot), in));
}

Result<Base> make_base(const BaseOptions& options) {
  Base base;
  if (options.rootless) {
    auto user = make_user_namespace();
    if (!user) return user.error();
    base.user = std::move(*user);
  }
  base.proc = Fd(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!base.proc) return os_error("cannot open /proc", errno);
  if (auto built = run_apart([&] { return build_base(options, base); }); !built) return built.error();
  return base;
}

Result<Template> make_template(const Base& base, const TemplateParts& parts) {
  Template result;
  if (auto built = run_apart([&] { return build_template(base, parts, result); }); !built)
    return built.error();
  return result;
}

}  // namespace isogate::ns
