#include "gateway/base/trusted_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <filesystem>

#include "lib/text.h"

namespace isogate {
namespace {

constexpr int kMaxLinks = 40;

std::string in_quotes(const std::string& text) { return "`" + text + "`"; }

bool is_trusted(uid_t uid) { return uid == 0 || uid == ::geteuid(); }

// On the way such a directory will do: nobody else can move away what a trusted user has in it. What is not
// there yet anybody may make.
bool is_sticky(const struct stat& info) {
  return is_trusted(info.st_uid) && S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
}

// A directory that is shared on purpose, like /tmp, must stay so: there only another place helps.
std::string or_chmod(const char* change, const struct stat& info, const std::string& path) {
  const bool shared = (info.st_mode & S_ISVTX) != 0 || (S_ISDIR(info.st_mode) && info.st_uid == 0);
  return shared ? std::string() : std::string(", or: chmod ") + change + " " + path;
}

Result<void> check_writers(const struct stat& info, const std::string& path) {
  const uid_t own = ::geteuid();
  if (!is_trusted(info.st_uid))
    return denied(in_quotes(path) + " belongs to uid " + std::to_string(info.st_uid) +
                  ", which could change " + "what this gateway loads; it must belong to root" +
                  (own == 0 ? "" : " or to uid " + std::to_string(own)) + ": chown root " + path);
  if ((info.st_mode & S_IWOTH) != 0)
    return denied(
        in_quotes(path) + " is writable by everybody" +
        ((info.st_mode & S_ISVTX) != 0 ? " (its sticky bit does not help: anybody may put a file there first)"
                                       : "") +
        "; use a place that only root or the gateway's user can write" + or_chmod("o-w", info, path));
  if ((info.st_mode & S_IWGRP) != 0)
    return denied(in_quotes(path) +
                  " is writable by its group; use a place that only root or the gateway's user" +
                  " can write" + or_chmod("g-w", info, path));
  return {};
}

std::deque<std::string> components(const std::string& path) {
  std::deque<std::string> parts;
  for (const std::string_view part : split(path, '/'))
    if (!part.empty()) parts.emplace_back(part);
  return parts;
}

// Walks a path one component at a time, each opened below the one before, so that what was checked is
// what is entered.
class Walk {
 public:
  explicit Walk(TrustedPath kind) : kind_(kind) {}

  Result<Fd> to(const std::string& path) {
    parts_ = components(path);
    if (auto begun = restart(); !begun) return begun.error();
    while (!parts_.empty()) {
      std::string part = std::move(parts_.front());
      parts_.pop_front();
      if (part == ".") continue;
      if (auto entered = part == ".." ? leave(path) : enter(part); !entered) return entered.error();
    }
    return std::move(here_);
  }

 private:
  Result<void> restart() {
    here_ = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    seen_.clear();
    sticky_ = false;
    struct stat info {};
    if (!here_ || ::fstat(here_.get(), &info) != 0) return os_error("cannot open `/`", errno);
    return check_writers(info, "/");
  }

  // All that is above has been checked.
  Result<void> leave(const std::string& path) {
    if (!kind_.links) return denied(in_quotes(path) + " has `..` in it; write the path out");
    Fd above(::openat(here_.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat info {};
    if (!above || ::fstat(above.get(), &info) != 0)
      return os_error("cannot open the directory above " + in_quotes(seen_), errno);
    here_ = std::move(above);
    seen_.resize(seen_.empty() ? 0 : seen_.rfind('/'));
    sticky_ = is_sticky(info);
    return {};
  }

  Result<void> enter(const std::string& part) {
    std::string path = seen_ + "/" + part;
    Fd next(::openat(here_.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next && errno == ENOENT && sticky_ && !kind_.links)
      return denied(in_quotes(path) + " is not there, and everybody may put something there");
    if (!next) return os_error("cannot open " + in_quotes(path), errno);
    struct stat info {};
    if (::fstat(next.get(), &info) != 0) return os_error("cannot look at " + in_quotes(path), errno);
    bool last = parts_.empty();
    if (S_ISLNK(info.st_mode)) {
      if (last && !kind_.directory && !kind_.links)
        return denied(in_quotes(path) + " is a symbolic link; name the file it points to");
      return follow(next, info, path);
    }
    if ((!last || kind_.directory) && !S_ISDIR(info.st_mode))
      return denied(in_quotes(path) + " is not a directory");
    const bool on_the_way = parts_.size() > (kind_.directory || kind_.links ? 0u : 1u);
    const bool sticky = on_the_way && is_sticky(info);
    if (auto checked = sticky ? Result<void>() : check_writers(info, path); !checked) return checked;
    if (last && !kind_.directory) return open_file(part, info, path);
    here_ = std::move(next);
    seen_ = path;
    sticky_ = sticky;
    return {};
  }

  // Nobody else can put another file here: the directory has been checked.
  Result<void> open_file(const std::string& part, const struct stat& info, const std::string& path) {
    if (!S_ISREG(info.st_mode)) return denied(in_quotes(path) + " is not a regular file");
    Fd file(::openat(here_.get(), part.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat opened {};
    if (!file || ::fstat(file.get(), &opened) != 0) return os_error("cannot open " + in_quotes(path), errno);
    if (opened.st_ino != info.st_ino || opened.st_dev != info.st_dev)
      return denied(in_quotes(path) + " was replaced while it was checked; try again");
    here_ = std::move(file);
    return {};
  }

  // The directory that holds the link is checked already: nobody else can point it elsewhere.
  Result<void> follow(const Fd& link, const struct stat& info, const std::string& path) {
    if (++links_ > kMaxLinks) return denied(in_quotes(path) + ": too many symbolic links");
    if (!is_trusted(info.st_uid))
      return denied(in_quotes(path) + " is a symbolic link of uid " + std::to_string(info.st_uid));
    const auto target = read_link(link.get(), "", "cannot read the symbolic link " + in_quotes(path));
    if (!target) return target.error();
    if (target->empty()) return denied(in_quotes(path) + " is an empty symbolic link");
    auto more = components(*target);
    parts_.insert(parts_.begin(), more.begin(), more.end());
    return target->starts_with('/') ? restart() : Result<void>();
  }

  TrustedPath kind_;
  Fd here_;
  std::string seen_;  // the path of here_, without a trailing slash
  std::deque<std::string> parts_;
  int links_ = 0;
  bool sticky_ = false;  // everybody may make something in here_
};

}  // namespace

Result<Fd> open_trusted(const std::string& path, TrustedPath kind) {
  if (path.empty() || path[0] != '/') return invalid(in_quotes(path) + " is not an absolute path");
  if (path.find('\0') != std::string::npos) return invalid("a path with a NUL byte in it");
  return Walk(kind).to(path);
}

Result<Fd> open_settings_file(const std::string& path, const std::string& attempt) {
  if (::geteuid() != 0) {
    Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file) return os_error(attempt, errno);
    return file;
  }
  std::error_code failed;
  const std::string whole = std::filesystem::absolute(path, failed).string();
  auto file = open_trusted(whole, {.links = true});
  if (file) return file;
  std::string& why = file.error().message;
  const bool repeats = file.error().os_errno != 0 && why.starts_with("cannot open " + in_quotes(whole) + ":");
  if (repeats) return os_error(attempt, file.error().os_errno);
  why = attempt + ": " + why;
  return file;
}

}  // namespace isogate
