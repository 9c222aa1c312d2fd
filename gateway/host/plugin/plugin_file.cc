#include "gateway/host/plugin/plugin_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "gateway/base/trusted_path.h"
#include "lib/hash.h"
#include "lib/text.h"

namespace isogate {
namespace {

constexpr size_t kMaxPluginBytes = 512 << 20;

std::string quoted(const std::string& text) { return "`" + text + "`"; }

Result<std::string> read_trusted_file(const std::string& path) {
  auto file = open_trusted(path);
  if (!file) return file.error();
  struct stat info {};
  if (::fstat(file->get(), &info) != 0) return os_error("cannot look at " + quoted(path), errno);
  auto bytes = read_to_end(file->get(), kMaxPluginBytes, "cannot read " + quoted(path));
  if (bytes && bytes->size() < static_cast<size_t>(info.st_size))
    return invalid(quoted(path) + " became shorter while it was read; try again");
  return bytes;
}

bool missing(const Error& error) { return error.os_errno == ENOENT; }

Result<void> check_search_path(const std::string& entry, const std::string& plugin) {
  std::string what =
      "the library search path (RUNPATH) of " + quoted(plugin) + " has " + quoted(entry) + ": ";
  if (entry.find('$') != std::string::npos)
    return denied(what +
                  "it is relative to the file, and the file is loaded from a private copy elsewhere; " +
                  "link that library statically, or give an absolute directory");
  if (entry.empty() || entry[0] != '/')
    return denied(what +
                  "a relative entry is looked up in whatever directory the gateway was started; link " +
                  "without -rpath (CMake: set CMAKE_SKIP_RPATH), or give an absolute directory");
  auto opened = open_trusted(entry, {.directory = true});
  if (!opened && !missing(opened.error())) return denied(what + opened.error().message);
  return {};
}

Result<void> check_needed(const std::string& name, const std::string& plugin) {
  if (name.find('/') == std::string::npos) return {};
  std::string what = quoted(plugin) + " is linked with " + quoted(name) + ": ";
  if (name[0] != '/' || name.find('$') != std::string::npos)
    return denied(what + "a relative path; link it by name or by an absolute path");
  auto opened = open_trusted(name);
  if (!opened) return denied(what + opened.error().message);
  return {};
}

Result<void> check_libraries(const ElfFacts& elf, const std::string& plugin) {
  if (elf.loads_more)
    return denied(quoted(plugin) + " asks the loader for audit or filter libraries; link it without");
  for (const std::string& entry : elf.search_paths)
    if (auto checked = check_search_path(entry, plugin); !checked) return checked;
  for (const std::string& name : elf.needed)
    if (auto checked = check_needed(name, plugin); !checked) return checked;
  return {};
}

// Names of copies: "p<pid>-<random>".
bool owner_has_ended(const char* name) {
  if (name[0] != 'p') return false;
  pid_t pid = 0;
  auto end = std::from_chars(name + 1, name + std::strlen(name), pid);
  return end.ec == std::errc() && *end.ptr == '-' && pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
}

void remove_copy(int parent, const std::string& name) {
  Fd dir(::openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir) return;
  ::unlinkat(dir.get(), PluginCopy::kFile, 0);
  ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);
}

void remove_leftovers(int parent) {
  std::unique_ptr<DIR, int (*)(DIR*)> listing(
      ::fdopendir(::openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), &::closedir);
  if (!listing) return;
  while (const dirent* entry = ::readdir(listing.get()))
    if (owner_has_ended(entry->d_name)) remove_copy(parent, entry->d_name);
}

Result<Fd> open_copy_dir(const std::string& path) {
  Fd dir(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir) return os_error("cannot open the directory for plugin copies " + quoted(path), errno);
  struct stat info {};
  if (::fstat(dir.get(), &info) != 0) return os_error("cannot look at " + quoted(path), errno);
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return denied("the directory for plugin copies " + quoted(path) + " must belong to uid " +
                  std::to_string(::geteuid()) + " with mode 0700");
  return dir;
}

Result<void> write_copy(int dir, const std::string& bytes) {
  // Readable by any uid with access to the directory: the quarantined child and a backend host without root
  // have it.
  Fd file(::openat(dir, PluginCopy::kFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return os_error("cannot make a private copy of the plugin", errno);
  if (!write_all(file.get(), bytes)) return os_error("cannot write a private copy of the plugin", errno);
  if (::fchmod(file.get(), 0555) != 0) return os_error("cannot set the mode of the plugin's copy", errno);
  return {};
}

}  // namespace

Result<PluginImage> inspect_plugin(const std::string& path, const std::string& pin) {
  auto bytes = read_trusted_file(path);
  if (!bytes) {
    bytes.error().message = "plugin refused: " + bytes.error().message;
    return bytes.error();
  }
  PluginImage image{path, sha256_hex(*bytes), std::move(*bytes), {}};
  if (!pin.empty() && to_lower(pin) != image.sha256)
    return denied("plugin " + quoted(path) + " refused: its SHA-256 is " + image.sha256 + ", pinned is " +
                  pin + "; if the new file is the one you want, pin that");
  auto elf = read_elf(image.bytes);
  if (!elf) return invalid("plugin " + quoted(path) + " refused: " + elf.error().message);
  image.elf = std::move(*elf);
  if (auto checked = check_libraries(image.elf, path); !checked)
    return denied("plugin refused: " + checked.error().message);
  return image;
}

Result<PluginCopy> make_copy(const PluginImage& image, const std::string& copy_dir) {
  auto parent = open_copy_dir(copy_dir);
  if (!parent) return parent.error();
  remove_leftovers(parent->get());
  std::string name = "p" + std::to_string(::getpid()) + "-" + hex(random_bytes(8));
  if (::mkdirat(parent->get(), name.c_str(), 0700) != 0)
    return os_error("cannot make a directory for the plugin's copy", errno);
  Fd dir(::openat(parent->get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  PluginCopy copy(std::move(dir), std::move(*parent), name);
  if (copy.directory() < 0) return os_error("cannot open the directory for the plugin's copy", errno);
  if (auto written = write_copy(copy.directory(), image.bytes); !written) return written.error();
  if (::fchmod(copy.directory(), 0711) != 0)
    return os_error("cannot set the mode of the plugin's copy", errno);
  return copy;
}

PluginCopy::PluginCopy(Fd dir, Fd parent, std::string name)
    : dir_(std::move(dir)), parent_(std::move(parent)), name_(std::move(name)) {}

PluginCopy::~PluginCopy() {
  if (parent_) remove_copy(parent_.get(), name_);
}

}  // namespace isogate
