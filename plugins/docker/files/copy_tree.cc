#include "plugins/docker/files/copy_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "lib/fd.h"
#include "lib/text.h"
#include "plugins/docker/files/exclude.h"
#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_tree.h"

namespace isogate::docker {
namespace {

constexpr int kDeepest = 100;

struct stat look_at(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw HostPathError(std::generic_category().message(errno));
  return info;
}

// Whether a link at `path` with that text stays below the top, `..` by `..`.
bool stays_inside(const std::string& path, const std::string& target) {
  if (target.empty() || target.front() == '/') return false;
  int depth = 0;
  for (const char c : path) depth += c == '/' ? 1 : 0;
  for (const std::string_view part : split(target, '/')) {
    if (part == ".." && --depth < 0) return false;
    if (!part.empty() && part != "." && part != "..") ++depth;
  }
  return true;
}

class Walk {
 public:
  Walk(TarWriter& tar, const Copy& copy, int top, const CopyOwner& owner, CopyRoom& room,
       const sdk::Call& call)
      : tar_(tar),
        copy_(copy),
        top_(top),
        device_(look_at(top).st_dev),
        owner_(owner),
        room_(room),
        call_(call) {}

  void directory(int path_fd, const std::string& path, int depth) {
    if (depth > kDeepest) refuse(path, "more than " + std::to_string(kDeepest) + " directories deep");
    count(path, 0);
    tar_.directory(entry(path, look_at(path_fd)));
    call_.check();
    const Fd listed(reopen(path_fd, O_RDONLY | O_DIRECTORY));
    if (!listed) refuse(path, std::generic_category().message(-listed.get()));
    const int code = each_name(listed.get(), [&](const DirReader::Name& name) {
      call_.check();
      child(path_fd, name.text, path.empty() ? name.text : path + "/" + name.text, depth);
    });
    if (code < 0) refuse(path, std::generic_category().message(-code));
  }

  void file(int path_fd, const std::string& path) {
    const struct stat before = look_at(path_fd);
    const auto size = static_cast<uint64_t>(before.st_size);
    count(path, size);
    const Fd open(reopen(path_fd, O_RDONLY | O_NOCTTY));
    if (!open) refuse(path, std::generic_category().message(-open.get()));
    tar_.begin_file(entry(path, before), size);
    uint64_t left = size;
    while (left > 0) left -= piece(open.get(), path, left);
    const struct stat after = look_at(open.get());
    if (after.st_size != before.st_size || after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
        after.st_mtim.tv_nsec != before.st_mtim.tv_nsec)
      refuse(path, "it changed while it was copied");
    tar_.end_file();
  }

 private:
  [[noreturn]] void refuse(const std::string& path, const std::string& why) const {
    const std::string whole = path.empty() ? copy_.source : copy_.source + "/" + path;
    throw HostPathError("cannot copy `" + whole + "` to " + copy_.target + ": " + why);
  }

  void count(const std::string& path, uint64_t bytes) {
    if (room_.entries == 0) refuse(path, "copies_max_entries is reached: exclude some, or raise it");
    if (bytes > room_.bytes) refuse(path, "copies_max_mb is reached: exclude some, or raise it");
    --room_.entries;
    room_.bytes -= bytes;
  }

  [[nodiscard]] TarEntry entry(const std::string& path, const struct stat& info) const {
    const std::string name = copy_.target.substr(1) + (path.empty() ? "" : "/" + path);
    const bool runs = S_ISDIR(info.st_mode) || (info.st_mode & 0111) != 0;
    const uint32_t mode = (owner_.writable ? 0644 : 0444) | (runs ? 0111 : 0);
    return {name, mode, owner_.uid, owner_.gid, info.st_mtim.tv_sec};
  }

  void child(int parent, const std::string& name, const std::string& path, int depth) {
    const Fd fd(::openat(parent, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) refuse(path, std::generic_category().message(errno));
    const struct stat info = look_at(fd.get());
    if (is_excluded(copy_.exclude, path, S_ISDIR(info.st_mode))) return;
    if (info.st_dev != device_) refuse(path, "another file system is mounted there");
    if (S_ISDIR(info.st_mode)) return directory(fd.get(), path, depth + 1);
    if (S_ISREG(info.st_mode)) return file(fd.get(), path);
    if (S_ISLNK(info.st_mode)) return link(fd.get(), path, info);
    refuse(path, "it is a socket, a FIFO or a device: exclude it");
  }

  void link(int path_fd, const std::string& path, const struct stat& info) {
    const auto target = read_link(path_fd, "", "");
    if (!target) refuse(path, "cannot read where this symlink leads");
    const auto outside = [&] { refuse(path, "this symlink leads outside of what is copied: exclude it"); };
    if (!stays_inside(path, *target)) outside();
    if (have_openat2()) {
      const Fd there(resolve({top_, true, true, "the source"}, path, O_PATH));
      if (there.get() == -EXDEV) outside();
      if (!there) refuse(path, "this symlink leads nowhere that can be read: exclude it");
    }
    count(path, 0);
    TarEntry made = entry(path, info);
    made.mode = 0777;
    tar_.symlink(made, *target);
  }

  size_t piece(int open, const std::string& path, uint64_t left) {
    call_.check();
    for (;;) {
      const ssize_t n = ::read(open, buffer_.data(), std::min<uint64_t>(left, buffer_.size()));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) refuse(path, std::generic_category().message(errno));
      if (n == 0) refuse(path, "it became shorter while it was copied");
      tar_.bytes({buffer_.data(), static_cast<size_t>(n)});
      return static_cast<size_t>(n);
    }
  }

  TarWriter& tar_;
  const Copy& copy_;
  const int top_;
  const dev_t device_;
  const CopyOwner owner_;
  CopyRoom& room_;
  const sdk::Call& call_;
  std::array<char, size_t{64} << 10> buffer_;
};

}  // namespace

bool is_directory(int path_fd) { return S_ISDIR(look_at(path_fd).st_mode); }

void copy_tree(TarWriter& tar, const Copy& copy, int source, const CopyOwner& owner, CopyRoom& room,
               const sdk::Call& call) {
  Walk walk(tar, copy, source, owner, room, call);
  if (is_directory(source)) return walk.directory(source, "", 0);
  walk.file(source, "");
}

}  // namespace isogate::docker
