#include "plugins/docker/host_paths.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "runner/workspace_resolve.h"

namespace isogate::docker {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw HostPathError("cannot use `" + path + "`: " + why);
}

int open_without_links(const std::string& path) {
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return -errno;
  const Tree tree{root.get(), false, true, "this host"};
  return resolve(tree, path.substr(1), O_PATH, false);
}

}  // namespace

Fd open_real(const std::string& path) {
  const int opened = open_without_links(path);
  if (opened == -ELOOP) refuse(path, "it is a symlink, or below one: write the path that it leads to");
  if (opened < 0) refuse(path, std::generic_category().message(-opened));
  Fd fd(opened);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) refuse(path, std::generic_category().message(errno));
  if (S_ISLNK(info.st_mode)) refuse(path, "it is a symlink: write the path that it leads to");
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) refuse(path, "it is neither a file nor a directory");
  return fd;
}

void check_mount_source(const Services& services, const Mount& mount) {
  if (services.engine.address().unix_path.empty() || services.place() == Place::kVolume) return;
  const int opened = open_without_links(mount.source);
  if (opened >= 0) ::close(opened);
  if (opened != -ENOENT) {
    (void)open_real(mount.source);
  } else if (services.sees_this_host()) {
    throw HostPathError(
        "cannot mount `" + mount.source + "` to " + mount.target +
        ": no such file or directory; where the Engine sees other directories than this host, "
        "set `workspace: volume`");
  }
}

}  // namespace isogate::docker
