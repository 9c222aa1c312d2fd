// Shared by the commands that start an exec.
#pragma once

#include "gateway/cli/attach.h"
#include "gateway/cli/event_stream.h"
#include "gateway/cli/options.h"

namespace isogate::cli {

inline constexpr double kStreamSilenceSec = 60;  // of a stream that has begun: a ping comes every 15 s

// What prints an exec's events: its output, or with json each line as it came. `lines`: output comes by
// lines, without their ends.
EventStream::Handlers printing(bool json, bool lines);

// Reports an end that the program did not cause, and truncated output. The exit code: the program's, or
// kGateway.
int end_with(const ExecEnd& end, bool json);

// An error where stdin is no terminal, which a program on a terminal needs.
Result<void> check_terminal();

// exec --interactive or --tty: starts it long-lived and attaches to it. A refusal is reported: kGateway.
AttachEnd run_attached(const ExecOptions& options);

}  // namespace isogate::cli
