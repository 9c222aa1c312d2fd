// The command line: `isogate serve`, `isogate exec`, … as a person and a script see it.
//
// stdout has the result, stderr the failure and the remedy. A key never appears in argv. [main]
#pragma once

namespace isogate::cli {

int cli_main(int argc, char** argv);

// Exit codes. `isogate exec` ends with the program's own: 128+n for a signal, 124 for a timeout, 137 when it
// was out of memory.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;     // refused, not found, not valid, nothing eligible
inline constexpr int kUsage = 2;      // invalid command line
inline constexpr int kGateway = 125;  // no gateway, no usable response; exec: also every refusal
inline constexpr int kInterrupted = 130;
inline constexpr int kPipeClosed = 141;  // stdout has no reader

}  // namespace isogate::cli
