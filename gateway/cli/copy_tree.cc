#include "gateway/cli/copy_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "gateway/cli/output.h"
#include "lib/tar/tar_writer.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

constexpr size_t kReadAtOnce = 65536;

std::string shown(const std::string& name) { return "`" + printable(name, 200) + "`"; }

// ---- from here

class TreeArchiver {
 public:
  TreeArchiver(const std::function<Result<void>(std::string_view)>& sink, LeftOut& left_out)
      : left_out_(left_out), writer_([this, &sink](std::string_view bytes) {
          if (state_.ok()) state_ = sink(bytes);
        }) {}

  Result<void> run(int top, const std::string& prefix) {
    struct stat info {};
    if (::fstat(top, &info) != 0) return os_error("cannot look at the directory", errno);
    Fd copy(::openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!copy) return os_error("cannot read the directory", errno);
    directory(std::move(copy), prefix, info);
    if (!state_.ok()) return state_;
    writer_.finish();
    return state_;
  }

 private:
  static TarEntry entry_of(std::string name, const struct stat& info) {
    return {.name = std::move(name), .mode = info.st_mode & 0777, .mtime = info.st_mtim.tv_sec};
  }

  void leave_out(const std::string& path, int code) {
    left_out_.emplace_back(path, os_error("cannot read it", code).message);
  }

  void directory(Fd fd, const std::string& prefix, const struct stat& info) {
    writer_.directory(entry_of(prefix.empty() ? "./" : prefix, info));
    const int number = fd.release();
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(number), ::closedir);
    if (!dir) {
      ::close(number);
      return leave_out(prefix, errno);
    }
    for (;;) {
      if (!state_.ok()) return;
      errno = 0;
      const struct dirent* next = ::readdir(dir.get());
      if (next == nullptr) break;
      const std::string name = next->d_name;
      if (name != "." && name != "..") child(::dirfd(dir.get()), name, prefix + name);
    }
    if (errno != 0) leave_out(prefix, errno);
  }

  void child(int dir, const std::string& name, const std::string& path) {
    struct stat info {};
    if (::fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return leave_out(path, errno);
    if (S_ISLNK(info.st_mode)) return symlink(dir, name, path, info);
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) {
      left_out_.emplace_back(path, "it is a FIFO, socket or device");
      return;
    }
    Fd fd(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd || ::fstat(fd.get(), &info) != 0) return leave_out(path, errno);
    if (S_ISDIR(info.st_mode)) return directory(std::move(fd), path + "/", info);
    if (S_ISREG(info.st_mode)) return file(fd.get(), path, info);
    left_out_.emplace_back(path, "it has become something else");
  }

  void symlink(int dir, const std::string& name, const std::string& path, const struct stat& info) {
    const auto target = read_link(dir, name, "");
    if (!target) return leave_out(path, target.error().os_errno);
    writer_.symlink(entry_of(path, info), *target);
  }

  // False: a file of size 0 has bytes all the same, or cannot be read, and is left out.
  bool is_empty(int fd, const std::string& path) {
    ssize_t n = 0;
    while ((n = ::read(fd, piece_.data(), 1)) < 0 && errno == EINTR) {
    }
    if (n < 0) leave_out(path, errno);
    struct stat now {};
    const bool has_grown = n > 0 && ::fstat(fd, &now) == 0 && now.st_size > 0;
    if (n <= 0 || has_grown) return n >= 0;
    left_out_.emplace_back(path, "the kernel generates it on reading, and does not say its size");
    return false;
  }

  // Its size is said before its bytes: one that shrinks meanwhile cannot be completed.
  void file(int fd, const std::string& path, const struct stat& info) {
    auto left = static_cast<uint64_t>(info.st_size);
    if (left == 0 && !is_empty(fd, path)) return;
    writer_.begin_file(entry_of(path, info), left);
    while (left > 0 && state_.ok()) {
      const ssize_t n = ::read(fd, piece_.data(), std::min<uint64_t>(left, piece_.size()));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        state_ = os_error("cannot read " + shown(path), errno);
      } else if (n == 0) {
        state_ = invalid(shown(path) + " became shorter while it was read");
      } else {
        writer_.bytes({piece_.data(), static_cast<size_t>(n)});
        left -= static_cast<uint64_t>(n);
      }
    }
    if (state_.ok()) writer_.end_file();
  }

  LeftOut& left_out_;
  Result<void> state_;
  std::string piece_ = std::string(kReadAtOnce, '\0');
  TarWriter writer_;
};

// ---- to here

Error hostile(const std::string& name, const std::string& why) {
  return {ISOGATE_LOST, 0, "the gateway's archive is refused: " + shown(name) + " " + why};
}

Result<std::vector<std::string>> parts_of(const std::string& name) {
  if (name.empty() || name.front() == '/') return hostile(name, "is no relative name");
  std::vector<std::string> parts;
  for (std::string_view rest = name; !rest.empty();) {
    const std::string_view part = next_part(rest, '/');
    if (part == "..") return hostile(name, "has a `..`");
    if (!part.empty() && part != ".") parts.emplace_back(part);
  }
  return parts;
}

timespec time_of(int64_t seconds) { return {.tv_sec = seconds, .tv_nsec = 0}; }

void set_times(int fd, int64_t mtime) {
  const timespec times[2] = {time_of(mtime), time_of(mtime)};
  ::futimens(fd, times);  // one that the file system cannot keep is no reason to fail
}

}  // namespace

uint32_t umask_now() {
  const mode_t mask = ::umask(022);
  ::umask(mask);
  return mask;
}

Result<void> archive_tree(int top, const std::string& prefix,
                          const std::function<Result<void>(std::string_view)>& sink, LeftOut& left_out) {
  return TreeArchiver(sink, left_out).run(top, prefix);
}

TreeExtractor::TreeExtractor(Fd top, std::string path, bool own)
    : top_(std::move(top)), path_(std::move(path)), own_(own), mask_(umask_now()) {}

TreeExtractor::~TreeExtractor() { drop_file(); }

void TreeExtractor::drop_file() {
  if (file_) ::unlinkat(parent_.get(), unfinished_.c_str(), 0);
  file_.reset();
  remove_when_interrupted("");
}

Result<void> TreeExtractor::take(std::string_view bytes) {
  for (;;) {
    const auto step = reader_.next(bytes);
    if (!step) return Error{ISOGATE_LOST, 0, "the gateway's response is invalid: " + step.error().message};
    Result<void> done;
    switch (*step) {
      case TarReader::Step::kMore:
        return {};
      case TarReader::Step::kMember:
        done = begin_member(reader_.member());
        break;
      case TarReader::Step::kContent:
        done = write_all(file_.get(), reader_.content());
        if (!done.ok()) done = Error{done.error().status, 0, shown_ + ": " + done.error().message};
        bytes_ += reader_.content().size();
        break;
      case TarReader::Step::kEnd:
        break;
    }
    if (done.ok() && file_ && reader_.content_left() == 0) done = end_file();
    if (!done.ok()) return done;
  }
}

Result<void> TreeExtractor::begin_member(const TarMember& member) {
  auto parts = parts_of(member.name);
  if (!parts.ok()) return parts.error();
  if (!member.skipped.empty()) skipped_ = member.skipped;
  switch (member.kind) {
    case TarMember::Kind::kDirectory:
      return make_directory(member, std::move(*parts));
    case TarMember::Kind::kFile:
      if (parts->empty()) return hostile(member.name, "is no name of a file");
      return begin_file(member, std::move(*parts));
    case TarMember::Kind::kSymlink:
      left_out_.emplace_back(member.name, "it is a symlink");
      return {};
    default:
      return hostile(member.name, "is " + member.kind_text());
  }
}

// No component may be a symlink. Missing ones are made with `make`.
Result<Fd> TreeExtractor::open_directory(const std::vector<std::string>& parts, size_t count,
                                         bool make) const {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  Fd at(::openat(top_.get(), ".", kFlags));
  std::string path = path_;
  for (size_t i = 0; i < count && at; ++i) {
    path += "/" + parts[i];
    Fd next(::openat(at.get(), parts[i].c_str(), kFlags));
    if (!next && errno == ENOENT && make && ::mkdirat(at.get(), parts[i].c_str(), 0777) == 0)
      next.reset(::openat(at.get(), parts[i].c_str(), kFlags));
    if (!next && (errno == ENOTDIR || errno == ELOOP))
      return Error{ISOGATE_IO, errno,
                   "cannot write below " + shown(path) + ": it is no directory, and no symlink is followed"};
    if (!next) return os_error("cannot open the directory " + shown(path), errno);
    at = std::move(next);
  }
  if (!at) return os_error("cannot open the directory " + shown(path), errno);
  return at;
}

// The owner may write into it until all is there.
Result<void> TreeExtractor::make_directory(const TarMember& member, std::vector<std::string> parts) {
  Directory directory{.parts = std::move(parts), .mode = member.mode, .mtime = member.mtime, .made = own_};
  if (!directory.parts.empty()) {
    auto parent = open_directory(directory.parts, directory.parts.size() - 1, true);
    if (!parent.ok()) return parent.error();
    directory.made =
        ::mkdirat(parent->get(), directory.parts.back().c_str(), (member.mode | 0700) & 0777) == 0;
    if (!directory.made && errno != EEXIST)
      return os_error("cannot make the directory " + shown(path_ + "/" + member.name), errno);
    if (auto there = open_directory(directory.parts, directory.parts.size(), false); !there.ok())
      return there.error();
  }
  directories_.push_back(std::move(directory));
  return {};
}

Result<void> TreeExtractor::begin_file(const TarMember& member, std::vector<std::string> parts) {
  name_ = std::move(parts.back());
  parts.pop_back();
  shown_ = shown(path_ + "/" + member.name);
  if (!parent_ || parts != parent_parts_) {
    auto parent = open_directory(parts, parts.size(), true);
    if (!parent.ok()) return parent.error();
    parent_ = std::move(*parent);
    parent_parts_ = std::move(parts);
  }
  unfinished_ = ".isogate-" + std::to_string(::getpid()) + "-" + std::to_string(files_);
  file_.reset(::openat(parent_.get(), unfinished_.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) return os_error("cannot write " + shown_, errno);
  std::string whole = path_;
  for (const std::string& part : parent_parts_) whole += "/" + part;
  remove_when_interrupted(whole + "/" + unfinished_);
  mode_ = member.mode;
  mtime_ = member.mtime;
  return {};
}

Result<void> TreeExtractor::end_file() {
  set_times(file_.get(), mtime_);
  if (::fchmod(file_.get(), mode_ & 0777 & ~mask_) != 0 ||
      ::renameat(parent_.get(), unfinished_.c_str(), parent_.get(), name_.c_str()) != 0) {
    const int code = errno;
    drop_file();
    return os_error("cannot write " + shown_, code);
  }
  file_.reset();
  remove_when_interrupted("");
  ++files_;
  return {};
}

Result<void> TreeExtractor::finish() {
  if (auto whole = reader_.finish(); !whole.ok())
    return Error{ISOGATE_LOST, 0, "the gateway's answer is cut short: " + whole.error().message};
  std::reverse(directories_.begin(), directories_.end());  // what is inside comes first
  for (const Directory& directory : directories_) {
    if (!directory.made) continue;
    const auto fd = open_directory(directory.parts, directory.parts.size(), false);
    if (!fd.ok()) return fd.error();
    if (::fchmod(fd->get(), directory.mode & 0777 & ~mask_) != 0)
      return os_error("cannot set the mode of a directory", errno);
    set_times(fd->get(), directory.mtime);
  }
  return {};
}

}  // namespace isogate::cli
