#include "plugins/docker/client/engine_sockets.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

#include "lib/error.h"
#include "lib/text.h"
#include "runner/cgroup/cgroup_detect.h"

namespace isogate::docker {
namespace {

constexpr const char* kUsual[] = {
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/docker/containerd/containerd.sock",
    "/var/run/docker/containerd/containerd.sock",
    "/run/containerd/containerd.sock",
    "/var/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/crio/crio.sock",
    "/run/podman/podman.sock",
    "/var/run/podman/podman.sock",
    "/run/user/*/docker.sock",
    "/run/user/*/podman/podman.sock",
};

// A row of mountinfo, proc(5): `root` is the part of the file system `device` that is visible at `point`.
struct MountRow {
  std::string id, device, root, point;
};

// A location: the file system and the path in it, and the path in this process's view.
struct Spot {
  std::string device, inner, path;
  bool linked = false;  // it may have other names
};

std::vector<MountRow> mounts_of_this_thread() {
  std::vector<MountRow> rows;
  std::ifstream table("/proc/thread-self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    MountRow row;
    std::string parent;
    fields >> row.id >> parent >> row.device >> row.root >> row.point;
    row.root = unescape(row.root);
    row.point = unescape(row.point);
    if (fields) rows.push_back(std::move(row));
  }
  return rows;
}

std::string mount_id_of(int fd) {
  const std::string info = read_small_file(AT_FDCWD, "/proc/thread-self/fdinfo/" + std::to_string(fd));
  return std::string(line_field(info, "mnt_id").value_or(""));
}

std::optional<Spot> spot_of(int fd, const std::vector<MountRow>& rows) {
  const auto target = read_link(AT_FDCWD, "/proc/thread-self/fd/" + std::to_string(fd), "");
  struct stat info {};
  if (!target || ::fstat(fd, &info) != 0) return std::nullopt;
  const std::string& path = *target;
  const std::string id = mount_id_of(fd);
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const MountRow& each) { return each.id == id; });
  if (row == rows.end() || !lies_in(path, row->point)) return std::nullopt;
  const std::string rest = row->point == "/" ? path : path.substr(row->point.size());
  const std::string inner = row->root == "/" ? rest : row->root + (rest == "/" ? "" : rest);
  return Spot{row->device, inner.empty() ? "/" : inner, path, !S_ISDIR(info.st_mode) && info.st_nlink > 1};
}

bool shows(const Spot& source, const Spot& socket, const std::vector<MountRow>& rows) {
  const auto has = [&](const std::string& device, const std::string& root) {
    return device == socket.device && (socket.linked || lies_in(socket.inner, root));
  };
  if (lies_in(socket.path, source.path) || has(source.device, source.inner)) return true;
  return std::any_of(rows.begin(), rows.end(), [&](const MountRow& each) {
    return lies_in(each.point, source.path) && has(each.device, each.root);
  });
}

// Component by component; "*" in `pattern` is any one.
bool meets_pattern(const std::string& path, const std::string& pattern) {
  std::istringstream parts(path), wanted(pattern);
  for (std::string part, want; std::getline(parts, part, '/');) {
    if (!std::getline(wanted, want, '/')) return false;
    if (want != "*" && want != part) return false;
  }
  return true;
}

}  // namespace

std::string usual_socket_in(const std::string& path) {
  for (const char* each : kUsual)
    if (meets_pattern(path, each)) return each;
  return {};
}

std::vector<std::string> sockets_here(const std::string& own) {
  std::vector<std::string> found;
  if (!own.empty()) found.push_back(own);
  for (const char* each : kUsual) {
    glob_t matches{};
    if (::glob(each, GLOB_NOSORT, nullptr, &matches) == 0)
      for (size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
    ::globfree(&matches);
  }
  return found;
}

Result<std::string> socket_shown_in(int source, const std::vector<std::string>& sockets) {
  const auto rows = mounts_of_this_thread();
  const auto place = spot_of(source, rows);
  if (!place) return Error{ISOGATE_UNAVAILABLE, 0, "cannot read its mount from /proc"};
  for (const std::string& each : sockets) {
    const Fd socket(::open(each.c_str(), O_PATH | O_CLOEXEC));
    if (!socket && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) continue;
    const auto its = socket ? spot_of(socket.get(), rows) : std::nullopt;
    if (!its) return Error{ISOGATE_UNAVAILABLE, 0, "cannot determine the file of the socket " + each};
    if (shows(*place, *its, rows)) return each;
  }
  return std::string();
}

}  // namespace isogate::docker
