// The runner's own program as an exec in its container: for what we ask of a sandbox ourselves.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "isogate/runner_link.hpp"

namespace isogate::docker {

struct Ran {
  int exit_code = 0;
  std::string out;  // stdout, of which a pipe's capacity is kept
};

// `isogate-runner arguments…`. Throws sdk::Error; ISOGATE_UNAVAILABLE when it does not exit within `most`.
Ran run_own(sdk::RunnerLink& link, const std::vector<std::string>& arguments, std::chrono::milliseconds most,
            const sdk::Call& call);

}  // namespace isogate::docker
