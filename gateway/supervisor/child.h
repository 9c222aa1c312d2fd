// A child process in one of the roles `_front` and `_host`: our own binary, started by fork and exec.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lib/fd.h"

namespace isogate::supervisor {

struct ChildProgram {
  int executable = -1;  // a descriptor: an upgrade on disk does not mix versions
  std::vector<std::string> argv;
  int output = 2;  // becomes its stdout and stderr
};

struct Child {
  pid_t pid = -1;
  Fd pidfd;    // to kill by
  Fd control;  // the supervisor's end; the child's is descriptor 3
};

// The child has its own session, / as its directory, stdin from /dev/null, descriptors 0 to 3 and no others,
// default signal dispositions, no blocked signal and child_environment(). An error when it cannot be exec'd.
// [main]
Result<Child> start_child(const ChildProgram& program);

// PATH and LANG are fixed, a few named variables are passed on, nothing else: the supervisor's own
// environment may hold secrets.
std::vector<std::string> child_environment();

void kill_child(const Child& child);

// "exit code 1", "signal 11 (SIGSEGV)"
std::string describe_end(int wait_status);

}  // namespace isogate::supervisor
