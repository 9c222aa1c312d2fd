// Whether a pod is a virtual machine, measured from inside before the first command of a tenant: the name
// of a runtime class proves nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "isogate/runner_link.hpp"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// Why these values from a pod (/proc/sys/kernel/random/boot_id, the beginning of /proc/cpuinfo) do not prove
// a virtual machine on that node; empty: they do. Its kernel was booted for it, and on x86 has found a
// hypervisor. An unknown value is no proof. Pure.
std::string why_no_machine(const nlohmann::json& node, std::string boot_id, const std::string& cpuinfo);

// For `isolation: vm`. Throws ISOGATE_UNAVAILABLE when it is no virtual machine, or that cannot be
// measured.
void prove_machine(Services& services, sdk::RunnerLink& link, const PodState& pod, const sdk::Call& call);

}  // namespace isogate::k8s
