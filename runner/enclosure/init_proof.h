// Compares an init's report about itself (init_protocol.h) with its enclosure. Every exec depends on it: an
// init in the wrong place gets no order.
#pragma once

#include "runner/enclosure/init_protocol.h"
#include "runner/exec/command.h"

namespace isogate {

// What every init of one enclosure must find.
struct EnclosureMarks {
  uint64_t host[7] = {};                       // the namespaces of this process, in the order of kNamespaces
  uint64_t mounts = 0, network = 0, user = 0;  // those of the enclosure; of the mounts each init has a copy
  FileMark root = {}, workspace = {};
};

// Fills all but the files. `user` -1: this process's own.
Result<EnclosureMarks> marks_of(int mounts, int network, int user);

// statx(2) below a directory descriptor; the mount on top counts. "" is the descriptor itself.
Result<FileMark> mark_of(int directory, const char* path);

// Pure. ISOGATE_INTERNAL, with the difference.
Result<void> check_proof(const InitProof& proof, const EnclosureMarks& marks, uint32_t uid, uint32_t gid);

}  // namespace isogate
