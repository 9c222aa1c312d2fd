#include "plugins/namespace/etc.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "runner/enclosure/enclosure_plan.h"
#include "runner/files/workspace_tree.h"

namespace isogate::ns {
namespace {

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
constexpr uint64_t kMostBytes = 12u << 20;
constexpr int kDeepest = 16;

struct Copy {
  uint64_t bytes = 0;
};

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  const Fd listing(::openat(directory, ".", kDirectory));
  each_name(listing.get(), [&](auto& name) { names.push_back(std::move(name.text)); });
  return names;
}

Result<void> write_text(int to, const char* name, const std::string& text) {
  const Fd file(::openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file || !write_all(file.get(), text))
    return os_error(std::string("cannot write the sandbox's /etc/") + name, errno);
  return {};
}

Result<void> copy_file(int from, int to, const std::string& name, const struct stat& info, Copy& copy) {
  copy.bytes += static_cast<uint64_t>(info.st_size);
  if (copy.bytes > kMostBytes)
    return Error{ISOGATE_RESOURCE_EXHAUSTED, 0, "what is copied into a sandbox's /etc is larger than 12 MiB"};
  const Fd source(::openat(from, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!source) return {};
  const Fd target(::openat(to, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!target) return os_error("cannot write the sandbox's /etc", errno);
  for (ssize_t sent = 1; sent > 0;) {
    sent = ::sendfile(target.get(), source.get(), nullptr, 1u << 20);
    if (sent < 0) return os_error("cannot copy `" + name + "` of /etc", errno);
  }
  // With its time: Python compiles a module again that looks newer than its cache.
  const timespec times[2] = {info.st_atim, info.st_mtim};
  if (::futimens(target.get(), times) != 0 || ::fchmod(target.get(), (info.st_mode & 0555) | 0200) != 0)
    return os_error("cannot write the sandbox's /etc", errno);
  return {};
}

Result<void> copy_link(int from, int to, const std::string& name) {
  const auto target = read_link(from, name, "");
  if (!target) return {};
  if (::symlinkat(target->c_str(), to, name.c_str()) != 0 && errno != EEXIST)
    return os_error("cannot write the sandbox's /etc", errno);
  return {};
}

// What others may not read is left out, as is what is neither file, link nor directory.
Result<void> copy_any(int from, int to, const std::string& name, Copy& copy, int depth) {
  struct stat info {};
  if (depth > kDeepest || ::fstatat(from, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (S_ISLNK(info.st_mode)) return copy_link(from, to, name);
  const mode_t needed = S_ISDIR(info.st_mode) ? S_IROTH | S_IXOTH : S_IROTH;
  if ((info.st_mode & needed) != needed) return {};
  if (S_ISREG(info.st_mode)) return copy_file(from, to, name, info, copy);
  if (!S_ISDIR(info.st_mode)) return {};
  const Fd source(::openat(from, name.c_str(), kDirectory));
  if (!source) return {};
  if (::mkdirat(to, name.c_str(), 0755) != 0 && errno != EEXIST)
    return os_error("cannot write the sandbox's /etc", errno);
  const Fd target(::openat(to, name.c_str(), kDirectory));
  if (!target) return os_error("cannot write the sandbox's /etc", errno);
  for (const auto& each : names_in(source.get())) {
    if (auto done = copy_any(source.get(), target.get(), each, copy, depth + 1); !done) return done;
  }
  return {};
}

Result<void> copy_entry(int from, int to, std::string_view name, Copy& copy) {
  const size_t slash = name.find('/');
  if (slash != std::string_view::npos) {
    const std::string parent(name.substr(0, slash));
    const Fd source(::openat(from, parent.c_str(), kDirectory));
    if (!source) return {};
    if (::mkdirat(to, parent.c_str(), 0755) != 0 && errno != EEXIST)
      return os_error("cannot write the sandbox's /etc", errno);
    const Fd target(::openat(to, parent.c_str(), kDirectory));
    return copy_entry(source.get(), target.get(), name.substr(slash + 1), copy);
  }
  if (!name.ends_with('*')) return copy_any(from, to, std::string(name), copy, 0);
  name.remove_suffix(1);
  for (const auto& each : names_in(from)) {
    if (!each.starts_with(name)) continue;
    if (auto done = copy_any(from, to, each, copy, 0); !done) return done;
  }
  return {};
}

Result<void> copy_table(int from, int to) {
  Copy copy;
  for (const Copied& each : kCopied) {
    if (auto done = copy_entry(from, to, each.name, copy); !done) return done;
  }
  return {};
}

constexpr std::string_view kMade[] = {"fstab", "group",         "hostname", "hosts",       "isogate",
                                      "mtab",  "nsswitch.conf", "passwd",   "resolv.conf", "shells"};

Result<void> copy_whole(int from, int to) {
  Copy copy;
  for (const auto& each : names_in(from)) {
    if (std::find(std::begin(kMade), std::end(kMade), each) != std::end(kMade)) continue;
    if (auto done = copy_any(from, to, each, copy, 0); !done) return done;
  }
  return {};
}

}  // namespace

Result<void> fill_etc(int to, const std::string& root) {
  const std::string path = root + "/etc";
  const Fd from(::open(path.c_str(), kDirectory));
  if (!from) return os_error("cannot open " + path, errno);
  if (auto copied = root.empty() ? copy_table(from.get(), to) : copy_whole(from.get(), to); !copied)
    return copied;
  const std::string name = kEnclosureHostName;
  const std::pair<const char*, std::string> texts[] = {
      {"hostname", name + "\n"},
      {"hosts", "127.0.0.1\tlocalhost " + name + "\n::1\tlocalhost\n"},
      {"resolv.conf", "# this sandbox has no network but its own loopback\n"},
      {"nsswitch.conf",
       "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n"
       "protocols: files\nnetworks: files\n"},
      {"shells", "/bin/sh\n/bin/bash\n"},
      {"fstab", ""},
  };
  for (const auto& [file, text] : texts) {
    if (auto written = write_text(to, file, text); !written) return written;
  }
  const std::pair<const char*, const char*> links[] = {
      {"isogate/passwd", "passwd"}, {"isogate/group", "group"}, {"/proc/self/mounts", "mtab"}};
  for (const auto& [target, link] : links) {
    if (::symlinkat(target, to, link) != 0) return os_error("cannot write the sandbox's /etc", errno);
  }
  if (::mkdirat(to, "isogate", 0755) != 0) return os_error("cannot write the sandbox's /etc", errno);
  return {};
}

}  // namespace isogate::ns
