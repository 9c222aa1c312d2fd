// The calls of a session that view a program which outlives it.
#pragma once

#include <memory>

#include "runner/agent/calls/call.h"

namespace isogate::agent {

// A call that starts one. Null: the frame has descriptors, which a program that outlives its session
// cannot have.
std::unique_ptr<Call> make_kept_exec(Place& place, Wire wire, const link::Frame& frame,
                                     link::ExecOrder order);
// A call that rejoins one. Null: the payload breaks the protocol's layout.
std::unique_ptr<Call> make_rejoin(Place& place, Wire wire, const link::Frame& frame);

}  // namespace isogate::agent
