#include "gateway/cli/scratch_dir.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "gateway/base/trusted_path.h"

namespace isogate::cli {
namespace {

std::string directory_above(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.starts_with('/') ? path.substr(0, path.rfind('/')) : "";
}

std::string common_place() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen == '/' ? chosen : "/tmp";
}

}  // namespace

Result<void> ScratchDir::make(const std::string& state_dir, const Check& fits) {
  const std::string above = directory_above(state_dir);
  if (!above.empty() && make_in(above, true) && (!fits || fits(path_))) return {};
  remove();
  if (auto made = make_in(common_place(), ::geteuid() == 0); !made) return made;
  return fits ? fits(path_) : Result<void>();
}

Result<void> ScratchDir::make_in(const std::string& parent, bool only_trusted) {
  constexpr const char* kRemedy = "TMPDIR can name another";
  std::string path = parent + "/isogate-tmp-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    return os_error("cannot make a directory in `" + parent + "` (" + kRemedy + ")", errno);
  path_ = path;
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return os_error("cannot look at `" + path + "`", errno);
  if ((info.f_flag & ST_NOEXEC) != 0)
    return Error{ISOGATE_UNAVAILABLE, 0,
                 "`" + parent + "` is on a file system mounted noexec, from which no plugin can be loaded (" +
                     kRemedy + ")"};
  if (!only_trusted) return {};
  if (auto opened = open_trusted(path, {.directory = true, .links = true}); !opened)
    return denied(opened.error().message + " (" + kRemedy + ")");
  return {};
}

void ScratchDir::remove() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  path_.clear();
}

}  // namespace isogate::cli
