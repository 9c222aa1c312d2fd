// How long each part of the gateway waits for the part below it. Each waits longer than that part may take,
// so that the part that knows the cause reports a delay: tests/supervisor/budgets_test.cc checks the order.
#pragma once

#include <chrono>

namespace isogate::budget {

using std::chrono::seconds;

// Calls. An exec has the deadline of its request.
inline constexpr seconds kKill{10};     // a runner, from SIGKILL to processes that the kernel delays
inline constexpr seconds kReturn{15};   // a plugin, from a call's cancellation to its return
inline constexpr seconds kDiskUse{5};   // how much disk a sandbox uses
inline constexpr seconds kProbe{20};    // a probe, a ping
inline constexpr seconds kMeasure{30};  // evidence, an enumeration, a sandbox re-attached or cleaned up
inline constexpr seconds kClose{60};
inline constexpr seconds kOpen{600};  // an image to pull, a large tree to remove

// The end of a gateway, in this order. drain_timeout_sec comes before it.
inline constexpr seconds kAnswersEnd{5};  // the front: from killing execs to their last answer
inline constexpr seconds kDrainExtra{7};  // the supervisor, for that
inline constexpr seconds kCallsEnd{12};   // a host: from cancelling its calls to their end
inline constexpr seconds kCloseAll{25};   // a host: all its sandboxes; then it cancels
inline constexpr seconds kCloseLate{4};   // a host: those that were cancelled
inline constexpr seconds kHostStop{43};   // the supervisor, for these three; then it kills the host
inline constexpr seconds kDestroy{30};    // a host: its plugin's destroy(), where no supervisor bounds it
inline constexpr seconds kFrontEnds{5};   // the supervisor: the front, when no host is left
inline constexpr seconds kOrphans{4};     // the supervisor: processes that no parent waits for

inline constexpr seconds kLeave{2};  // the supervisor: a process that has nothing left to do

}  // namespace isogate::budget
