// What brings a stream to an `isogate-runner serve`: started from outside, it gives away its input and
// output, and lasts as long as they are used. No byte of a session passes it.
#pragma once

#include "runner/resident/options.h"

namespace isogate::resident {

Result<void> attach(const Options& options);

}  // namespace isogate::resident
