// The command line of isogate-runner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/error.h"

namespace isogate::agent {

enum class Mode { dial, stdio, serve, attach, idle, version, install, names, reach, syscalls };

// How a limit of the workspace is enforced.
enum class DiskBound {
  counted,  // not enforced: files are counted, and file calls beyond the limit are refused
  kernel,   // by the kernel, set up by whoever started this runner
  volume,   // it may be a separate volume that is no larger
};

struct Options {
  Mode mode = Mode::idle;
  std::string socket;                       // of dial
  std::string listener = "isogate-runner";  // of serve and attach: an abstract socket
  std::string server = "1";                 // of attach: the pid that must be at its other end
  std::vector<std::string> operands;  // of install, the directory; of names, the files; of reach, the targets
  std::string workspace = "/workspace";
  std::string shell = "/bin/sh";
  std::string toolchain;                                    // goes in front of PATH; may be empty
  std::vector<std::pair<std::string, std::string>> shared;  // prefix, directory: read-only in the file calls
  std::string user_name;                                    // empty: from /etc/passwd
  uint64_t disk_limit = 0;                                  // bytes of the workspace; 0: no limit
  DiskBound disk_bound = DiskBound::counted;
  std::string scratch;  // of the only runner in its container: see leftovers.h; empty: nothing is removed
};

Result<Options> parse_options(int argc, char** argv);

// What `isogate-runner` prints for a wrong command line.
std::string usage();

}  // namespace isogate::agent
