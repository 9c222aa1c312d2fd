#include "plugins/namespace/operator_paths.h"

#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "lib/text.h"

namespace isogate::ns {
namespace {

constexpr const char* kNever[] = {"/proc", "/sys", "/dev", "/run", "/var/run", "/etc/isogate"};
constexpr int kMostEntries = 1'000'000;

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

// Closed to this process, and so to a sandbox, which has fewer rights.
bool is_closed(const FTSENT& entry) {
  return entry.fts_info == FTS_DNR && ::access(entry.fts_accpath, X_OK) != 0;
}

}  // namespace

Result<void> check_no_socket(std::string path, const std::string& what) {
  char* const roots[] = {path.data(), nullptr};
  const std::unique_ptr<FTS, Close> walk(::fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, nullptr));
  if (walk == nullptr) return os_error("cannot look for sockets in " + what, errno);
  int seen = 0;
  errno = 0;
  while (const FTSENT* entry = ::fts_read(walk.get())) {
    if (entry->fts_info == FTS_DEFAULT && S_ISSOCK(entry->fts_statp->st_mode))
      return invalid(what + " holds the socket `" + entry->fts_path +
                     "`, by which a sandbox would reach the service behind it: choose a directory without " +
                     "one");
    const bool unknown =
        entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS;
    if (unknown && !is_closed(*entry))
      return os_error("cannot look for sockets in all of " + what, entry->fts_errno);
    if (++seen > kMostEntries)
      return invalid(what + " holds more than " + std::to_string(kMostEntries) +
                     " files, too many to look for sockets among them: choose a smaller one");
    errno = 0;
  }
  if (errno != 0) return os_error("cannot look for sockets in all of " + what, errno);
  return {};
}

Result<void> check_apart(const std::string& path, const std::vector<std::string>& own,
                         const std::string& what) {
  const std::string real = resolved(path);
  if (real.empty()) return os_error("cannot find " + what, errno);
  std::vector<std::string> never(std::begin(kNever), std::end(kNever));
  never.insert(never.end(), own.begin(), own.end());
  for (const std::string& each : never) {
    const std::string other = resolved(each);
    if (other.empty() || (!lies_in(real, other) && !lies_in(other, real))) continue;
    return invalid(
        what +
        " overlaps a directory that no sandbox may see (the gateway's own, /proc, /sys, /dev, /run): " +
        "choose a directory that holds nothing else");
  }
  return {};
}

Result<void> check_shown(const std::string& path, const std::vector<std::string>& own,
                         const std::string& what) {
  if (auto apart = check_apart(path, own, what); !apart) return apart;
  return check_no_socket(path, what);
}

Result<void> check_in_place(const std::string& path, const std::vector<std::string>& own,
                            const std::string& what) {
  for (const char* each : {"/tmp", "/var/tmp", "/workspace", "/etc", "/mnt"}) {
    if (lies_in(path, each))
      return invalid(what + " lies in " + each +
                     ", where a sandbox has its own files: choose a directory elsewhere, "
                     "such as /opt");
  }
  return check_shown(path, own, what);
}

}  // namespace isogate::ns
