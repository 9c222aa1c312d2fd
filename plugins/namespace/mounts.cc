#include "plugins/namespace/mounts.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "lib/text.h"

namespace isogate::ns {
namespace {

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

}  // namespace

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

Result<Fd> fresh_mount(const char* type, const std::string& options, uint64_t attributes) {
  const Fd context(call(::syscall(SYS_fsopen, type, FSOPEN_CLOEXEC)));
  if (!context) return os_error(std::string("cannot open file system type `") + type + "`", errno);
  if (auto done = configure(context.get(), options); !done) return done.error();
  Fd mount(call(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, attributes)));
  if (!mount) return os_error(std::string("cannot mount a `") + type + "`", errno);
  return mount;
}

Result<void> attach(const Fd& mount, int directory, const std::string& path, const std::string& what) {
  const Fd target(::openat(directory, path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
  if (!target) return os_error("cannot find the place of " + what, errno);
  if (::syscall(SYS_move_mount, mount.get(), "", target.get(), "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    return os_error("cannot mount " + what, errno);
  return {};
}

}  // namespace isogate::ns
