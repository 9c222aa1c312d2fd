#include "runner/cgroup/cgroup_detect.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "lib/fd.h"
#include "lib/text.h"

namespace isogate {
namespace {

std::vector<std::string_view> words(std::string_view text, char separator) {
  auto parts = split(text, separator);
  std::erase(parts, "");
  return parts;
}

struct Mount {
  std::string root, point;
  bool unified = false;
  std::vector<std::string_view> options;
};

std::optional<Mount> parse_mount(std::string_view line) {
  const auto fields = words(line, ' ');
  const auto dash = std::find(fields.begin(), fields.end(), "-");
  if (fields.size() < 5 || fields.end() - dash < 4) return std::nullopt;
  const std::string_view type = dash[1];
  if (type != "cgroup" && type != "cgroup2") return std::nullopt;
  return Mount{unescape(fields[3]), unescape(fields[4]), type == "cgroup2", words(dash[3], ',')};
}

// Our path in a mount whose root may itself be below the hierarchy's.
std::optional<std::string> below_root(const std::string& path, const std::string& root) {
  if (root.find("/..") != std::string::npos || path.find("/..") != std::string::npos) return std::nullopt;
  if (root == "/") return path == "/" ? "" : path;
  if (path == root) return "";
  if (path.starts_with(root) && path[root.size()] == '/') return path.substr(root.size());
  return std::nullopt;
}

bool same_hierarchy(const Mount& mount, const std::vector<std::string_view>& controllers) {
  if (mount.unified) return controllers.empty();
  return !controllers.empty() && std::all_of(controllers.begin(), controllers.end(), [&](auto name) {
    return std::find(mount.options.begin(), mount.options.end(), name) != mount.options.end();
  });
}

std::optional<CgroupHierarchy> locate(const std::vector<Mount>& mounts, std::string_view line) {
  const size_t first = line.find(':');
  const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto controllers = words(line.substr(first + 1, second - first - 1), ',');
  const std::string path(line.substr(second + 1));
  for (const auto& mount : mounts) {
    if (!same_hierarchy(mount, controllers)) continue;
    const auto below = below_root(path, mount.root);
    if (!below) continue;
    CgroupHierarchy found{mount.unified ? 2 : 1, mount.point + *below, below->empty(), {}};
    found.controllers.assign(controllers.begin(), controllers.end());
    return found;
  }
  return std::nullopt;
}

}  // namespace

bool is_delegated(const std::string& directory) {
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    std::array<char, 2> value{};
    if (::getxattr(directory.c_str(), name, value.data(), value.size()) == 1 && value[0] == '1') return true;
  }
  return false;
}

std::string directory_of_groups(const CgroupHierarchy& hierarchy) {
  const size_t slash = hierarchy.directory.rfind('/');
  if (hierarchy.version == 2 && !hierarchy.at_mount_root && slash != std::string::npos) {
    std::string above = hierarchy.directory.substr(0, slash);
    if (is_delegated(above)) return above;
  }
  return hierarchy.directory;
}

std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool CgroupHierarchy::has(std::string_view controller) const {
  return std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
}

std::vector<CgroupHierarchy> parse_cgroups(std::string_view mountinfo, std::string_view self) {
  std::vector<Mount> mounts;
  for (const auto line : words(mountinfo, '\n')) {
    if (auto mount = parse_mount(line)) mounts.push_back(std::move(*mount));
  }
  std::vector<CgroupHierarchy> found;
  for (const auto line : words(self, '\n')) {
    if (auto hierarchy = locate(mounts, line)) found.push_back(std::move(*hierarchy));
  }
  return found;
}

std::vector<CgroupHierarchy> detect_cgroups() {
  auto found = parse_cgroups(read_small_file(AT_FDCWD, "/proc/self/mountinfo"),
                             read_small_file(AT_FDCWD, "/proc/self/cgroup"));
  for (auto& hierarchy : found) {
    if (hierarchy.version != 2) continue;
    const std::string names =
        read_small_file(AT_FDCWD, directory_of_groups(hierarchy) + "/cgroup.controllers");
    const std::string_view line = std::string_view(names).substr(0, names.find('\n'));
    for (const auto name : words(line, ' ')) hierarchy.controllers.emplace_back(name);
  }
  return found;
}

std::string read_small_file(int directory_fd, const std::string& name) {
  const Fd file(::openat(directory_fd, name.c_str(), O_RDONLY | O_CLOEXEC));
  auto text = read_to_end(file.get(), size_t{64} << 20, name);
  return text ? std::move(*text) : std::string();
}

}  // namespace isogate
