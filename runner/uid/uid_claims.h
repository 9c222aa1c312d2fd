// Which gateway has which uid. uid_registry.h assigns uids per state directory; claims make them
// visible to the other gateways of this host, so that no gateway assigns another's uid, and `local`
// does not kill its processes.
//
// On disk: <directory>/<uid> is a symbolic link to the entry of the gateway that has it, <uids_dir>/<uid>. A
// claim without its entry is void, so that a crash or a removed state directory leaves nothing. If the
// directory cannot be made (not root, a read-only file system) there are no claims: no other gateway could
// have made one there either. Any thread, any process.
#pragma once

#include <cstdint>
#include <string>

#include "lib/error.h"

namespace isogate {

class UidClaims {
 public:
  // Both absolute.
  UidClaims(std::string directory, std::string uids_dir);

  // True: it is ours, now or before. The entry must exist. False: another gateway's.
  Result<bool> claim(uint32_t uid) const;
  // The entry of the gateway that has it, <its uids_dir>/<uid>; empty: nobody's, ours, or not known.
  [[nodiscard]] std::string other_holder(uint32_t uid) const;
  // Only what is ours.
  void withdraw(uint32_t uid) const;

 private:
  std::string directory_, uids_dir_;
};

}  // namespace isogate
