// Which uid is which gateway's: what uid_registry.h gives out per state directory, visible to the other
// gateways of this host, so that none gives out, and `local` ends, what is another's.
//
// On disk: <directory>/<uid> is a symbolic link to the entry of the gateway that has it, <uids_dir>/<uid>. A
// claim whose entry is gone is nobody's, so that nothing is left over by a crash or a state directory that
// was removed. Where the directory cannot be made (not root, a file system without writing) there are no
// claims: no other gateway could have made one there either. Any thread, any process.
#pragma once

#include <cstdint>
#include <string>

#include "lib/error.h"

namespace isogate {

class UidClaims {
 public:
  // Both absolute.
  UidClaims(std::string directory, std::string uids_dir);

  // True: it is ours, now or before. The entry has to be there. False: another gateway's.
  Result<bool> claim(uint32_t uid) const;
  // Only what is ours.
  void withdraw(uint32_t uid) const;

 private:
  std::string directory_, uids_dir_;
};

}  // namespace isogate
