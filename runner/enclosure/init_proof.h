// What an init says of itself (init_protocol.h), held against what its enclosure is. Every exec stands on it:
// an init that is not where it should be gets no order.
#pragma once

#include "runner/enclosure/init_protocol.h"
#include "runner/exec/command.h"

namespace isogate {

// What every init of one enclosure has to find.
struct EnclosureMarks {
  uint64_t host[7] = {};                       // the namespaces of this process, in the order of kNamespaces
  uint64_t mounts = 0, network = 0, user = 0;  // those of the enclosure; of the mounts each init has a copy
  FileMark root = {}, workspace = {};
};

// Fills all but the files. `user` -1: this process's own.
Result<EnclosureMarks> marks_of(int mounts, int network, int user);

// statx(2) below a directory descriptor; the mount on top counts. "" is the descriptor itself.
Result<FileMark> mark_of(int directory, const char* path);

// Pure. ISOGATE_INTERNAL, and what is wrong.
Result<void> check_proof(const InitProof& proof, const EnclosureMarks& marks, uint32_t uid, uint32_t gid);

}  // namespace isogate
