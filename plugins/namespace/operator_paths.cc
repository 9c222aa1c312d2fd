#include "plugins/namespace/operator_paths.h"

#include <fts.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

namespace isogate::ns {
namespace {

constexpr const char* kNever[] = {"/proc", "/sys", "/dev", "/run", "/var/run", "/etc/isogate"};
constexpr int kMostEntries = 20'000;

struct Free {
  void operator()(char* text) const { std::free(text); }
};
struct Close {
  void operator()(FTS* walk) const { ::fts_close(walk); }
};

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, Free> text(::realpath(path.c_str(), nullptr));
  return text == nullptr ? "" : text.get();
}

bool is_in(const std::string& path, const std::string& parent) {
  return path == parent || parent == "/" || path.starts_with(parent + "/");
}

bool holds_socket(std::string path) {
  char* const roots[] = {path.data(), nullptr};
  const std::unique_ptr<FTS, Close> walk(::fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, nullptr));
  if (walk == nullptr) return false;
  int seen = 0;
  while (const FTSENT* entry = ::fts_read(walk.get())) {
    if (entry->fts_info == FTS_DEFAULT && S_ISSOCK(entry->fts_statp->st_mode)) return true;
    if (++seen > kMostEntries) return false;
  }
  return false;
}

}  // namespace

Result<void> check_shown(const std::string& path, const std::vector<std::string>& own,
                         const std::string& what) {
  const std::string real = resolved(path);
  if (real.empty()) return os_error("cannot find " + what, errno);
  std::vector<std::string> never(std::begin(kNever), std::end(kNever));
  never.insert(never.end(), own.begin(), own.end());
  for (const std::string& each : never) {
    const std::string other = resolved(each);
    if (other.empty() || (!is_in(real, other) && !is_in(other, real))) continue;
    return invalid(
        what +
        " overlaps a directory that no sandbox may see (the gateway's own, /proc, /sys, /dev, /run): " +
        "choose a directory that holds nothing else");
  }
  if (holds_socket(real))
    return invalid(
        what + " holds a socket, by which a sandbox would reach the service behind it: choose a directory " +
        "without one");
  return {};
}

Result<void> check_in_place(const std::string& path, const std::vector<std::string>& own,
                            const std::string& what) {
  for (const char* each : {"/tmp", "/var/tmp", "/workspace", "/etc", "/mnt"}) {
    if (is_in(path, each))
      return invalid(what + " lies in " + each +
                     ", where a sandbox has its own files: choose a directory elsewhere, "
                     "such as /opt");
  }
  return check_shown(path, own, what);
}

}  // namespace isogate::ns
