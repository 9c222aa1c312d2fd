// What is measured inside an enclosure, by a child of its init, before any tenant's program (measure.h).
#pragma once

#include "runner/init_protocol.h"
#include "runner/measure_portrait.h"

namespace isogate {

struct InitPortrait {
  SelfPortrait self;
  uint32_t address_count, reserved;
  InitAddress addresses[kInitMostAddresses];
  // 0: somebody answered; else the errno of connect(2), ETIMEDOUT where nothing came within a moment.
  int32_t reached[kInitMostAddresses];
};

// Raw code; `argument` is an InitPortrait. Does not return.
void raw_measure_inside(void* argument);

}  // namespace isogate
