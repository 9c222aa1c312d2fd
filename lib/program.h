// Runs helper programs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "lib/error.h"
#include "lib/fd.h"

namespace isogate {

// `texts` as exec(3) takes them; valid while they are unchanged.
std::vector<char*> pointers(std::vector<std::string>& texts);

// Readable once that process has ended; none before Linux 5.3 (errno).
Fd watch_process(pid_t pid);

// A program to run. The descriptors are borrowed.
struct Program {
  static constexpr int kNull = -1, kOutput = -2;

  std::string path;                      // searched in PATH if it has no slash
  std::vector<std::string> arguments;    // its name first
  std::vector<std::string> environment;  // name=value
  std::vector<int> files;  // its descriptors 0, 1 and so on; kNull: /dev/null; kOutput: what is read here
  int directory = -1;      // where it starts; -1: where this process is
  std::chrono::milliseconds time{0};  // it is killed then
  int cancel_fd = -1;                 // and once this is readable
  size_t most_output = 0;             // and when it writes more,
  bool drops_output = false;          // … or the rest is dropped
};

struct ProgramEnd {
  enum class How { kEnded, kLate, kCancelled, kFlooded };

  How how = How::kEnded;
  int wait_status = 0;  // of waitpid(2)
  std::string output;
  // As a shell gives it: 128 and the number of the signal that killed it.
  [[nodiscard]] int exit_code() const;
};

// Runs it to its end, without blocked or ignored signals. It leads a process group, which is killed when the
// program has ended; the output of processes that have left the group is not waited for. Any thread.
Result<ProgramEnd> run_program(Program program);

}  // namespace isogate
