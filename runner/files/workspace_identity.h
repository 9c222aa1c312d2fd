// The second protection of the workspace: file operations run with the sandbox's fsuid and fsgid, so that the
// kernel refuses access that a mistake of ours would allow. See setfsuid(2), credentials(7).
#pragma once

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <optional>

#include "runner/exec/command.h"

namespace isogate {

// While it lives, this thread (no other) reaches files as `identity`, with no group and no effective
// capability. Nothing changes if identity.change is false. Check error() before the operation. A thread that
// had groups loses them permanently. May be nested, with the same identity. The process ends if its own
// identity cannot be restored.
class FsIdentity {
 public:
  explicit FsIdentity(const Identity& identity) : FsIdentity(identity, false) {}
  // Within another one: the process's own identity again, with the capabilities that it is permitted.
  static FsIdentity of_this_process(bool change);
  ~FsIdentity();
  FsIdentity(const FsIdentity&) = delete;
  FsIdentity& operator=(const FsIdentity&) = delete;

  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  using CapabilitySets = std::array<__user_cap_data_struct, 2>;

  FsIdentity(const Identity& identity, bool capable);
  static bool set_capabilities(const CapabilitySets& sets);

  bool changed_ = false, capabilities_changed_ = false;
  uid_t old_uid_ = 0;
  gid_t old_gid_ = 0;
  CapabilitySets old_capabilities_{};
  std::optional<Error> error_;
};

// Whether the permission bits let `identity` write the file; without a change of identity, this process with
// its groups. The bits also decide for root, which counts as the owner of every file: capabilities do not
// count.
bool mode_lets_write(const struct stat& file, const Identity& identity);

}  // namespace isogate
