// A tree of this machine to a tar, and a tar to a tree of this machine: both ends of `isogate cp -r`. Local
// paths are opened by descriptors, one component at a time, and no symlink below the top is followed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/error.h"
#include "lib/fd.h"
#include "lib/tar/tar_reader.h"

namespace isogate::cli {

// What was not copied: a path, and why.
using LeftOut = std::vector<std::pair<std::string, std::string>>;

// Writes the directory `top` to `sink` as a whole archive; its members begin with `prefix`, which is empty or
// ends with a slash. Symlinks are members. Unreadable entries, and those that cannot be members, as files
// whose size the kernel does not know, are added to `left_out`. After an error, which may be the sink's own,
// the archive has no end.
Result<void> archive_tree(int top, const std::string& prefix,
                          const std::function<Result<void>(std::string_view)>& sink, LeftOut& left_out);

uint32_t umask_now();  // of this process. One thread

// Creates the members of an untrusted archive below a directory and nowhere else: a name that is absolute,
// has a `..` or leads through a symlink is an error, and so are hard links and devices. Symlinks are left
// out. A file gets its name when it is complete, and replaces an existing one.
class TreeExtractor {
 public:
  // `path` names `top` in messages. `own`: the directory was made for this archive and gets the mode of its
  // top.
  TreeExtractor(Fd top, std::string path, bool own);
  ~TreeExtractor();
  TreeExtractor(const TreeExtractor&) = delete;
  TreeExtractor& operator=(const TreeExtractor&) = delete;

  Result<void> take(std::string_view bytes);
  // At the end of the bytes: an error when the archive is not complete. Directories get their modes and
  // times.
  Result<void> finish();

  [[nodiscard]] uint64_t files() const { return files_; }
  [[nodiscard]] uint64_t directories() const { return directories_.size(); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  // The entries that the gateway left out, from its archive; and those that this code left out.
  [[nodiscard]] const std::string& skipped() const { return skipped_; }
  [[nodiscard]] const LeftOut& left_out() const { return left_out_; }

 private:
  struct Directory {
    std::vector<std::string> parts;
    uint32_t mode = 0;
    int64_t mtime = 0;
    bool made = false;
  };

  Result<void> begin_member(const TarMember& member);
  Result<void> make_directory(const TarMember& member, std::vector<std::string> parts);
  Result<void> begin_file(const TarMember& member, std::vector<std::string> parts);
  Result<void> end_file();
  Result<Fd> open_directory(const std::vector<std::string>& parts, size_t count, bool make) const;
  void drop_file();

  Fd top_;
  const std::string path_;
  const bool own_;
  const uint32_t mask_;
  TarReader reader_;
  std::vector<Directory> directories_;
  LeftOut left_out_;
  std::string skipped_;
  uint64_t files_ = 0, bytes_ = 0;
  // The file whose content comes.
  Fd parent_, file_;
  std::vector<std::string> parent_parts_;
  std::string unfinished_, name_, shown_;
  uint32_t mode_ = 0;
  int64_t mtime_ = 0;
};

}  // namespace isogate::cli
