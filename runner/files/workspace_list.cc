#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "runner/files/workspace_identity.h"
#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_transfer.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

constexpr size_t kBatch = 8 << 10;
constexpr size_t kOpenFrames = 16;  // directories kept open; those above them are opened again later
constexpr size_t kMaxListedPath = 4095;

uint32_t type_of(mode_t mode) {
  if (S_ISREG(mode)) return ISOGATE_ENTRY_REGULAR;
  if (S_ISDIR(mode)) return ISOGATE_ENTRY_DIRECTORY;
  return S_ISLNK(mode) ? ISOGATE_ENTRY_SYMLINK : ISOGATE_ENTRY_OTHER;
}

class Lister {
 public:
  Lister(bool recursive, uint64_t limit, const Identity& identity, const isogate_entry_sink& sink)
      : recursive_(recursive), left_(limit == 0 ? UINT64_MAX : limit), identity_(identity), sink_(sink) {}

  Result<void> run(int top, int cancel_fd);

 private:
  struct Frame {
    Fd fd;  // empty: closed for the time being
    dev_t dev = 0;
    ino_t ino = 0;
    DirReader reader;
    std::vector<std::string> pending;  // subdirectories of the last batch
    size_t prefix = 0;                 // how much of prefix_ is its own path, slash included
  };
  struct Item {
    std::string name;
    isogate_entry entry;
  };

  Result<void> read_batch(Frame& frame);
  Result<std::vector<Item>> stat_batch(Frame& frame);
  Result<void> emit(Frame& frame, std::vector<Item>& items);
  Result<void> descend(Frame& parent);
  Result<bool> ensure_open(Frame& frame);
  bool push(Fd fd, size_t prefix);

  bool recursive_, too_deep_ = false;
  uint64_t left_;
  const Identity& identity_;
  const isogate_entry_sink& sink_;
  int top_ = -1;
  std::string prefix_;
  std::vector<Frame> frames_;
};

bool Lister::push(Fd fd, size_t prefix) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return false;
  Frame frame;
  frame.fd = std::move(fd);
  frame.dev = info.st_dev;
  frame.ino = info.st_ino;
  frame.prefix = prefix;
  frames_.push_back(std::move(frame));
  if (frames_.size() > kOpenFrames) frames_[frames_.size() - 1 - kOpenFrames].fd.reset();
  return true;
}

// Whether the machine, not the tree, is the reason that something cannot be opened.
bool out_of_something(int negative) {
  return negative == -EMFILE || negative == -ENFILE || negative == -ENOMEM;
}

// A directory that moved away meanwhile is not searched for: the rest of it is not listed.
Result<bool> Lister::ensure_open(Frame& frame) {
  if (frame.fd) return true;
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  Tree tree;
  tree.fd = top_;
  Fd fd(resolve(tree, frame.prefix == 0 ? "." : prefix_.substr(0, frame.prefix), O_RDONLY | O_DIRECTORY,
                false));
  struct stat info {};
  if (out_of_something(fd.get())) return os_error("cannot list", -fd.get());
  if (!fd || ::fstat(fd.get(), &info) != 0 || info.st_dev != frame.dev || info.st_ino != frame.ino)
    return false;
  if (::lseek(fd.get(), frame.reader.position(), SEEK_SET) < 0) return false;
  frame.fd = std::move(fd);
  return true;
}

Result<std::vector<Lister::Item>> Lister::stat_batch(Frame& frame) {
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  std::vector<Item> items;
  std::vector<DirReader::Name> names;
  if (const int code = frame.reader.next(frame.fd.get(), names); code < 0)
    return os_error("cannot list", -code);
  for (auto& name : names) {
    struct stat info {};
    if (::fstatat(frame.fd.get(), name.text.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;
      info = {};
      info.st_mode = DTTOIF(name.type);
    }
    items.push_back({prefix_ + name.text, entry_of(info)});
  }
  return items;
}

Result<void> Lister::emit(Frame& frame, std::vector<Item>& items) {
  for (auto& item : items) {
    if (left_ == 0) return {};
    --left_;
    item.entry.name = {item.name.data(), item.name.size()};
    if (const isogate_status status = sink_.add(sink_.ctx, &item.entry); status != ISOGATE_OK)
      return Error{status, 0, "the listing was stopped by its receiver"};
    if (!recursive_ || item.entry.type != ISOGATE_ENTRY_DIRECTORY) continue;
    if (item.name.size() < kMaxListedPath)
      frame.pending.push_back(item.name.substr(frame.prefix));
    else
      too_deep_ = true;
  }
  return {};
}

Result<void> Lister::read_batch(Frame& frame) {
  auto items = stat_batch(frame);
  if (!items) return items.error();
  return emit(frame, *items);
}

Result<void> Lister::descend(Frame& parent) {
  const std::string name = std::move(parent.pending.back());
  parent.pending.pop_back();
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  Fd fd(resolve_child(parent.fd.get(), name, O_RDONLY | O_DIRECTORY));
  if (out_of_something(fd.get())) return os_error("cannot list", -fd.get());
  if (!fd) return {};  // removed, swapped, not readable, or another mount
  if (is_of_a_process(fd.get())) return {};
  prefix_ += name + '/';
  push(std::move(fd), prefix_.size());
  return {};
}

Result<void> Lister::run(int top, int cancel_fd) {
  top_ = top;
  Fd copy(::fcntl(top, F_DUPFD_CLOEXEC, 0));
  if (!copy || !push(std::move(copy), 0)) return os_error("cannot list", errno);
  while (!frames_.empty() && left_ > 0) {
    if (is_signalled(cancel_fd)) return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
    Frame& frame = frames_.back();
    prefix_.resize(frame.prefix);
    const bool done = frame.pending.empty() && frame.reader.end();
    const auto open = done ? Result<bool>(false) : ensure_open(frame);
    if (!open) return open.error();
    if (!*open) {
      frames_.pop_back();
      continue;
    }
    if (auto step = frame.pending.empty() ? read_batch(frame) : descend(frame); !step) return step;
  }
  if (!too_deep_) return {};
  return Error{ISOGATE_RESOURCE_EXHAUSTED, ENAMETOOLONG,
               "what lies deeper than a path of 4,095 bytes can name is left out"};
}

}  // namespace

isogate_entry entry_of(const struct stat& info) {
  isogate_entry entry{};
  entry.struct_size = sizeof entry;
  entry.type = type_of(info.st_mode);
  entry.mode = info.st_mode & 0777;
  entry.size = S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
  entry.mtime_ns = info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec;
  return entry;
}

int DirReader::next(int dir_fd, std::vector<Name>& names) {
  alignas(struct dirent64) std::array<char, kBatch> buffer;
  const long got = ::syscall(SYS_getdents64, dir_fd, buffer.data(), buffer.size());
  if (got < 0 && errno != ENOENT) return -errno;  // ENOENT: the directory was removed
  end_ = got <= 0;
  for (long at = 0; at < got;) {
    unsigned short length = 0;
    std::memcpy(&position_, &buffer[at + offsetof(dirent64, d_off)], sizeof position_);
    std::memcpy(&length, &buffer[at + offsetof(dirent64, d_reclen)], sizeof length);
    const auto type = static_cast<unsigned char>(buffer[at + offsetof(dirent64, d_type)]);
    const char* text = &buffer[at + offsetof(dirent64, d_name)];
    at += length;
    if (std::strcmp(text, ".") == 0 || std::strcmp(text, "..") == 0) continue;
    names.push_back({text, type});
  }
  return 0;
}

Result<void> list_tree(int top, bool recursive, uint64_t limit, const Identity& identity,
                       const isogate_entry_sink& sink, int cancel_fd) {
  return Lister(recursive, limit, identity, sink).run(top, cancel_fd);
}

}  // namespace isogate
