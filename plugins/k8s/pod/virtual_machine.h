// Whether a pod is a virtual machine, looked at from inside before the first command of a tenant: a runtime
// class that is called so may be anything.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "isogate/runner_link.hpp"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// Why what was read in a pod (/proc/sys/kernel/random/boot_id, the beginning of /proc/cpuinfo) is no virtual
// machine on that node; empty: it is one. Its kernel was booted for it, and on x86 has found a hypervisor.
// What cannot be told is none. Pure.
std::string why_no_machine(const nlohmann::json& node, std::string boot_id, const std::string& cpuinfo);

// Where the configuration says `isolation: vm`. Throws ISOGATE_UNAVAILABLE when it is not so, or cannot be
// looked at.
void prove_machine(Services& services, sdk::RunnerLink& link, const PodState& pod, const sdk::Call& call);

}  // namespace isogate::k8s
