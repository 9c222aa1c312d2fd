// What an Engine was asked to make, and did not confirm, may still appear.
#pragma once

#include <chrono>

#include "plugins/docker/client/engine.h"

namespace isogate::docker {

// How long after a call that was broken off.
inline constexpr std::chrono::milliseconds kMadeLate{3'000};

// Looks once; if it may still be `unsure`, again until it is there or `late` is over. Throws what `is_there`
// throws, and ISOGATE_CANCELLED.
template <typename IsThere>
void await_late(bool unsure, const Budget& late, const IsThere& is_there) {
  while (!is_there() && unsure && !late.over()) {
    if (late.wait(-1, 0, std::chrono::milliseconds(100)) == Budget::Outcome::kCancelled)
      throw sdk::Error(ISOGATE_CANCELLED, "cancelled");
  }
}

}  // namespace isogate::docker
