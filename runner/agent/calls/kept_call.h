// The calls of a session that view a program which outlives it.
#pragma once

#include <memory>

#include "runner/agent/calls/call.h"

namespace isogate::agent {

// One that is started. Null: the frame has descriptors, which no program that outlives them can have.
std::unique_ptr<Call> make_kept_exec(Place& place, Wire wire, const link::Frame& frame,
                                     link::ExecOrder order);
// One that is there. Null: the payload is not laid out as the protocol says.
std::unique_ptr<Call> make_rejoin(Place& place, Wire wire, const link::Frame& frame);

}  // namespace isogate::agent
