// A file that is written under a temporary name and then renamed into place, or removed if this object
// is destroyed first.
//
// While it is written it is locked (flock(2)), so that another process, the next generation of the same
// backend, can distinguish a crash's leftovers from files in use.
#pragma once

#include <string>
#include <string_view>

#include "runner/files/workspace_identity.h"

namespace isogate {

class StagedFile {
 public:
  // An empty file, mode 0600, under a fresh name in `dir` (borrowed, outlives it); `hidden`: a recognizable
  // name. The caller has taken the identity; the destructor takes it by itself.
  static Result<StagedFile> create(int dir, const Identity& identity, bool hidden);
  StagedFile(StagedFile&& other) noexcept;
  StagedFile& operator=(StagedFile&&) = delete;
  ~StagedFile();

  // Another one in the same directory.
  [[nodiscard]] Result<StagedFile> sibling() const { return create(dir_, identity_, hidden_); }
  [[nodiscard]] int fd() const { return file_.get(); }
  // renameat2(2) to `leaf` in `parent`; 0 or -errno. Whoever may write to the directory can replace a
  // hidden file: -ESTALE if the target is then not this file; a symlink in its place is removed. The
  // caller has taken the identity.
  int commit(int parent, const std::string& leaf, bool exclusive);

 private:
  StagedFile(int dir, const Identity& identity, bool hidden, std::string name, Fd file);
  [[nodiscard]] bool lock() const;
  [[nodiscard]] bool is_at(int dir, const std::string& name) const;

  int dir_;  // -1: committed or moved from
  Identity identity_;
  bool hidden_;
  std::string name_;
  Fd file_;
};

// Whether it is a name that create() gives to a hidden file.
bool is_staged_name(std::string_view name);

// Removes files that no living StagedFile owns from a directory of such files (O_RDONLY,
// borrowed).
Result<void> sweep_staged(int dir);

// 16 hex digits from the kernel's generator.
Result<std::string> random_name();

}  // namespace isogate
