// What is measured inside an enclosure, by a child of its init, before any tenant's program (measure.h).
#pragma once

#include "runner/enclosure/init_protocol.h"
#include "runner/enclosure/measure_portrait.h"

namespace isogate {

enum InitReach : uint32_t {
  kUntried,   // there was no socket, or no outcome
  kAnswered,  // something answered
  kSilent,    // refused, or unreachable, or nothing came within a moment
};

struct InitPortrait {
  SelfPortrait self;
  uint32_t address_count, reserved;
  InitAddress addresses[kInitMostAddresses];
  InitReach reached[kInitMostAddresses];
};

// Raw code; `argument` is an InitPortrait. Does not return.
void raw_measure_inside(void* argument);

}  // namespace isogate
