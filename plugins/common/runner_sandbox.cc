#include "plugins/common/runner_sandbox.h"

#include <algorithm>

namespace isogate {

void RunnerSandbox::run(sdk::RunnerLink& link, const sdk::Call& call, const isogate_exec_request& request,
                        isogate_exec_result& result) const {
  with_surroundings(request, [&](const isogate_exec_request& whole) { link.exec(call, whole, result); });
}

void RunnerSandbox::run_kept(sdk::RunnerLink& link, const sdk::Call& call,
                             const isogate_exec_request& request, const isogate_kept_exec& kept,
                             isogate_exec_result& result) const {
  with_surroundings(request,
                    [&](const isogate_exec_request& whole) { link.start_kept(call, whole, kept, result); });
}

void RunnerSandbox::with_surroundings(const isogate_exec_request& request,
                                      const std::function<void(const isogate_exec_request&)>& work) const {
  std::vector<isogate_pair> env(request.env, request.env + request.envc);
  for (const auto& [key, value] : surroundings_) {
    const auto is_it = [&key = key](const isogate_pair& each) { return sdk::view(each.key) == key; };
    if (std::none_of(env.begin(), env.end(), is_it)) env.push_back({sdk::str(key), sdk::str(value)});
  }
  isogate_exec_request whole = request;
  whole.env = env.data();
  whole.envc = env.size();
  work(whole);
}

// What nobody uses now is not woken for it.
void RunnerSandbox::disk_use(const sdk::Call& call, isogate_disk_use& out) {
  const auto link = runner_if_connected();
  if (link == nullptr) throw sdk::Error(ISOGATE_UNAVAILABLE, "the runner of this sandbox is not available");
  link->disk_use(call, out);
}

}  // namespace isogate
