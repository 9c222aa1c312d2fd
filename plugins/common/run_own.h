// Programs that a backend itself runs in a sandbox, before or beside the commands of a tenant.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "isogate/runner_link.hpp"

namespace isogate {

struct Ran {
  int exit_code = -1;  // -1: it did not start, or did not exit by itself
  std::string out;     // stdout, of which a pipe's capacity is kept
};

// Runs `argv` without stdin and stderr, as the sandbox's user. `stdout_fd` -1: without stdout. Any thread.
// Throws what RunnerLink::exec() throws.
isogate_exec_result exec_own(sdk::RunnerLink& link, const std::vector<std::string>& argv,
                             const std::vector<std::pair<std::string, std::string>>& env, int stdout_fd,
                             const sdk::Call& call);
// The same without environment.
Ran run_own(sdk::RunnerLink& link, const std::vector<std::string>& argv, const sdk::Call& call);

// What RunnerLink::evidence() finds. Likewise.
isogate_evidence measure_in(sdk::RunnerLink& link, const isogate_evidence_request& request,
                            const sdk::Call& call);

}  // namespace isogate
