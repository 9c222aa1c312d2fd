// A plugin file on its way to be loaded: checked, hashed, copied.
//
// Whoever can change the file, a directory above it, or a directory of its libraries runs code with a
// backend host's privileges. So all of them belong to root or to the gateway's own user, and nobody else
// may write there. That includes /tmp: its sticky bit keeps others from replacing an entry, but not from
// putting one there first.
//
// The file is read once; what is hashed, inspected and copied are those very bytes. [any]
#pragma once

#include <string>

#include "gateway/host/plugin/elf.h"
#include "lib/fd.h"

namespace isogate {

struct PluginImage {
  std::string path;
  std::string sha256;  // 64 hex digits
  std::string bytes;
  ElfFacts elf;
};

// Every check that needs no code of the plugin to run. The message names the check that failed, the file, and
// what to do.
Result<PluginImage> inspect_plugin(const std::string& path, const std::string& pin);

// A private copy: <dir>/plugin.so below a directory of its own in `copy_dir`. The copy is entered by
// its directory's descriptor, so that a process which has given up its rights still reaches it.
class PluginCopy {
 public:
  PluginCopy(Fd dir, Fd parent, std::string name);
  PluginCopy(PluginCopy&&) = default;
  PluginCopy& operator=(PluginCopy&&) = delete;
  ~PluginCopy();  // removes the copy if this process still may; make_copy() clears what was left

  [[nodiscard]] int directory() const { return dir_.get(); }
  static constexpr const char* kFile = "plugin.so";

 private:
  Fd dir_, parent_;
  std::string name_;
};

// `copy_dir` is this process's user's, 0700, and not mounted noexec. Copies of processes that have ended
// are removed on the way.
Result<PluginCopy> make_copy(const PluginImage& image, const std::string& copy_dir);

}  // namespace isogate
