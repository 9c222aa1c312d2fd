// The command line: `isogate serve`, `isogate exec`, … as a person and a script see it.
//
// stdout carries what was asked for, stderr what went wrong and what to do about it. A key never appears
// in argv. Exit codes are those of exit_code.h. [main]
#pragma once

namespace isogate::cli {

int cli_main(int argc, char** argv);

}  // namespace isogate::cli
