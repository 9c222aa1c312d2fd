// What a program that runs with an identity finds about itself: the evidence behind a claim of
// isolation.
//
// The child goes through raw_spawn's preparation like any program, with a copied address space. It reports
// in a page shared with this process, which no tenant can change.
#pragma once

#include "runner/enclosure/measure_portrait.h"
#include "runner/exec/command.h"
#include "runner/exec/spawn/spawn.h"
#include "runner/exec/spawn/spawn_rescue.h"

namespace isogate {

// Pure. ISOGATE_INTERNAL where the portrait lacks a line that every kernel writes.
Result<isogate_evidence> evidence_from(const SelfPortrait& portrait);

// `plan`: of a program of this Runner with that identity.
Result<isogate_evidence> measure_identity(SpawnPlan plan, const Identity& identity, SpawnRescuer& rescuer);

}  // namespace isogate
