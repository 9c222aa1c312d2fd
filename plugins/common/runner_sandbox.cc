#include "plugins/common/runner_sandbox.h"

#include <algorithm>

namespace isogate {

isogate_exec_request RunnerSandbox::with_surroundings(const isogate_exec_request& request,
                                                      std::vector<isogate_pair>& env) const {
  env.assign(request.env, request.env + request.envc);
  for (const auto& [key, value] : surroundings_) {
    const auto is_it = [&key = key](const isogate_pair& each) { return sdk::view(each.key) == key; };
    if (std::none_of(env.begin(), env.end(), is_it)) env.push_back({sdk::str(key), sdk::str(value)});
  }
  isogate_exec_request whole = request;
  whole.env = env.data();
  whole.envc = env.size();
  return whole;
}

// What nobody uses now is not woken for it.
void RunnerSandbox::disk_use(const sdk::Call& call, isogate_disk_use& out) {
  const auto link = runner_if_connected();
  if (link == nullptr) throw sdk::Error(ISOGATE_UNAVAILABLE, "the runner of this sandbox is not available");
  link->disk_use(call, out);
}

}  // namespace isogate
