// The second protection of the workspace: file operations run with the sandbox's fsuid and fsgid, so that the
// kernel refuses access that a mistake of ours would allow. See setfsuid(2), credentials(7).
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>

#include "runner/exec/command.h"

namespace isogate {

// While it lives, this thread (no other) reaches files as `identity`, with no group and none of the file
// capabilities. Nothing changes if identity.change is false. Check error() before the operation. A
// thread that had groups loses them permanently. May be nested.
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

// Whether the permission bits let `identity` write the file; without a change of identity, this process with
// its groups. The bits also decide for root, which counts as the owner of every file: capabilities do not
// count.
bool mode_lets_write(const struct stat& file, const Identity& identity);

}  // namespace isogate
