#include "plugins/common/runner_sandbox.h"

#include <algorithm>

namespace isogate {

void RunnerSandbox::run(sdk::RunnerLink& link, const sdk::Call& call, const isogate_exec_request& request,
                        isogate_exec_result& result) const {
  std::vector<isogate_pair> env(request.env, request.env + request.envc);
  for (const auto& [key, value] : surroundings_) {
    const auto is_it = [&key = key](const isogate_pair& each) { return sdk::view(each.key) == key; };
    if (std::none_of(env.begin(), env.end(), is_it)) env.push_back({sdk::str(key), sdk::str(value)});
  }
  isogate_exec_request whole = request;
  whole.env = env.data();
  whole.envc = env.size();
  link.exec(call, whole, result);
}

}  // namespace isogate
