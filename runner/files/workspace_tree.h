// Walks of whole trees from a directory descriptor: listing and removing. Iterative, with a bounded number
// of descriptors at any depth, and through single names that are neither symlinks nor other mounts. Any
// thread.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <vector>

#include "runner/exec/command.h"

namespace isogate {

isogate_entry entry_of(const struct stat& info);

// Reads names of a directory in batches of one getdents64(2).
class DirReader {
 public:
  struct Name {
    std::string text;
    unsigned char type;  // DT_*
  };
  // The next names, `.` and `..` left out; an empty batch with end() is the end. 0 or -errno.
  int next(int dir_fd, std::vector<Name>& names);
  [[nodiscard]] bool end() const { return end_; }
  [[nodiscard]] int64_t position() const { return position_; }  // for lseek, to go on from here

 private:
  bool end_ = false;
  int64_t position_ = 0;
};

// Calls `f` with each DirReader::Name of what is left to read in a directory. 0 or -errno.
template <class F>
int each_name(int dir_fd, F f) {
  for (DirReader reader; !reader.end();) {
    std::vector<DirReader::Name> names;
    if (const int code = reader.next(dir_fd, names); code < 0) return code;
    for (DirReader::Name& name : names) f(name);
  }
  return 0;
}

// See Workspace::list. `top` is a readable directory, borrowed. The sink is called without the identity.
Result<void> list_tree(int top, bool recursive, uint64_t limit, const Identity& identity,
                       const isogate_entry_sink& sink, int cancel_fd);

// Removes `name` in the directory `parent` (borrowed), whatever it is, with everything in it, as the identity
// that the caller has taken. Entries that cannot be removed stay, and the first error is returned; the rest
// is removed. Directories inside that are closed to their owner are opened up. ISOGATE_CANCELLED, by
// cancel_fd or past the deadline: part of it may be removed.
Result<void> remove_tree(
    int parent, const std::string& name, int cancel_fd,
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());

}  // namespace isogate
