// The second protection of the workspace: file operations run with the sandbox's fsuid and fsgid, so that the
// kernel refuses what a mistake of ours would have let through. See setfsuid(2), credentials(7).
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>

#include "runner/exec/command.h"

namespace isogate {

// While it lives, this thread (no other) reaches files as `identity`, with no group and none of the file
// capabilities. Nothing changes where identity.change is false. Look at error() before the operation.
// A thread that had groups loses them for good. May be nested.
class FsIdentity {
 public:
  explicit FsIdentity(const Identity& identity);
  ~FsIdentity();
  FsIdentity(const FsIdentity&) = delete;
  FsIdentity& operator=(const FsIdentity&) = delete;

  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  bool changed_ = false;
  uid_t old_uid_ = 0;
  gid_t old_gid_ = 0;
  std::optional<Error> error_;
};

// Whether the permission bits let `identity` write the file; where it does not change, this process with its
// groups. The bits decide for root too, which counts as the owner of every file: no capability is asked.
bool mode_lets_write(const struct stat& file, const Identity& identity);

}  // namespace isogate
