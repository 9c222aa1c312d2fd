// The first words on a stream of a session that outlives its streams.
#pragma once

#include <chrono>

#include "isogate/runner_link.hpp"
#include "isogate/runner_resume.h"

namespace isogate::sdk::link {

// Says `own` and waits for the answer, which is left as it came. Throws ISOGATE_UNAVAILABLE, also where it
// does not come until then or is none, ISOGATE_CANCELLED.
isogate_runner_resumed agree(RunnerStream& stream, const isogate_runner_resume& own, const Call& call,
                             std::chrono::steady_clock::time_point until);

// What is wrong with it; null: nothing. Pure.
const char* fault_of(const isogate_runner_resumed& answer, const isogate_runner_resume& asked);

}  // namespace isogate::sdk::link
