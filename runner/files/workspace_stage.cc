#include "runner/files/workspace_stage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

constexpr int kMaxStageTries = 8;
constexpr const char *kStagedPrefix = ".isogate-", *kStagedSuffix = ".part";
constexpr size_t kRandomDigits = 16;

}  // namespace

StagedFile::StagedFile(int dir, const Identity& identity, bool hidden, std::string name, Fd file)
    : dir_(dir), identity_(identity), hidden_(hidden), name_(std::move(name)), file_(std::move(file)) {}

StagedFile::StagedFile(StagedFile&& other) noexcept
    : dir_(std::exchange(other.dir_, -1)),
      identity_(other.identity_),
      hidden_(other.hidden_),
      name_(std::move(other.name_)),
      file_(std::move(other.file_)) {}

StagedFile::~StagedFile() {
  if (dir_ < 0) return;
  const FsIdentity as_tenant(identity_);
  if (!as_tenant.error()) ::unlinkat(dir_, name_.c_str(), 0);
}

// False: a sweep was faster.
bool StagedFile::lock() const {
  struct stat info {};
  return ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 && ::fstat(file_.get(), &info) == 0 &&
         info.st_nlink > 0;
}

Result<StagedFile> StagedFile::create(int dir, const Identity& identity, bool hidden) {
  for (int tries = 0; tries < kMaxStageTries; ++tries) {
    auto random = random_name();
    if (!random) return random.error();
    std::string name = hidden ? kStagedPrefix + *random + kStagedSuffix : *random;
    Fd file(::openat(dir, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return os_error("cannot stage the file", errno);
    StagedFile staged(dir, identity, hidden, std::move(name), std::move(file));
    if (staged.lock()) return staged;
  }
  return os_error("cannot stage the file", EBUSY);
}

bool StagedFile::is_at(int dir, const std::string& name) const {
  struct stat mine {
  }, there{};
  return ::fstat(file_.get(), &mine) == 0 && ::fstatat(dir, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

int StagedFile::commit(int parent, const std::string& leaf, bool exclusive) {
  const unsigned flags = exclusive ? RENAME_NOREPLACE : 0U;
  if (hidden_ && !is_at(dir_, name_)) return -ESTALE;
  if (::renameat2(dir_, name_.c_str(), parent, leaf.c_str(), flags) != 0) return -errno;
  dir_ = -1;
  if (!hidden_ || is_at(parent, leaf)) return 0;
  struct stat stranger {};
  if (::fstatat(parent, leaf.c_str(), &stranger, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(stranger.st_mode))
    ::unlinkat(parent, leaf.c_str(), 0);
  return -ESTALE;
}

bool is_staged_name(std::string_view name) {
  const std::string_view prefix = kStagedPrefix, suffix = kStagedSuffix;
  return name.size() == prefix.size() + kRandomDigits + suffix.size() && name.starts_with(prefix) &&
         name.ends_with(suffix);
}

Result<void> sweep_staged(int dir) {
  for (DirReader reader; !reader.end();) {
    std::vector<DirReader::Name> names;
    if (const int code = reader.next(dir, names); code < 0)
      return os_error("cannot list what is staged", -code);
    for (const auto& name : names) {
      const Fd file(resolve_child(dir, name.text, O_RDONLY | O_NONBLOCK | O_NOCTTY));
      if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
      if (auto removed = remove_tree(dir, name.text, -1); !removed) return removed;
    }
  }
  return {};
}

Result<std::string> random_name() {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number)
    return os_error("cannot draw a random name", errno);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return std::string(text);
}

}  // namespace isogate
