#include "plugins/docker/files/host_paths.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "lib/text.h"
#include "plugins/docker/client/engine_sockets.h"
#include "runner/files/workspace_resolve.h"

namespace isogate::docker {
namespace {

[[noreturn]] void refuse_path(const std::string& path, const std::string& why) {
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
  if (opened == -ELOOP) refuse_path(path, "it is a symlink, or below one: write the path that it leads to");
  if (opened < 0) refuse_path(path, std::generic_category().message(-opened));
  Fd fd(opened);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) refuse_path(path, std::generic_category().message(errno));
  if (S_ISLNK(info.st_mode)) refuse_path(path, "it is a symlink: write the path that it leads to");
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
    refuse_path(path, "it is neither a file nor a directory");
  return fd;
}

void check_no_socket(const Services& services, const std::string& source, const std::string& target) {
  const std::string attempt = "cannot mount `" + source + "` to " + target + ": ";
  const std::string own = services.engine.address().unix_path;
  const auto refuse_socket = [&](const std::string& socket) {
    throw HostPathError(attempt + "it shows an engine's socket, " + socket +
                        ", and with it the whole machine; name a directory without it");
  };
  if (!own.empty() && lies_in(own, source)) refuse_socket(own);
  const Fd fd(::open(source.c_str(), O_PATH | O_CLOEXEC));
  if (!fd && (errno == ENOENT || errno == ENOTDIR || own.empty())) return;
  if (!fd) throw HostPathError(attempt + std::generic_category().message(errno));
  const auto shown = socket_shown_in(fd.get(), sockets_here(own));
  if (!shown)
    throw HostPathError(attempt +
                        "whether it shows an engine's socket is not known: " + shown.error().message);
  if (!shown->empty()) refuse_socket(*shown);
}

void check_mount_source(const Services& services, const Mount& mount) {
  check_no_socket(services, mount.source, mount.target);
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

void check_shared_source(const Services& services, const std::string& source, const std::string& target) {
  if (const std::string socket = usual_socket_in(source); !socket.empty())
    throw HostPathError("cannot mount `" + source + "` to " + target + ": engines have a socket there, " +
                        socket + ", and with it the whole machine");
  check_no_socket(services, source, target);
}

}  // namespace isogate::docker
