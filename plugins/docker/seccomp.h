// The seccomp profile of a container, as Engines take it: made from the table of
// runner/enclosure/syscall_policy.h, which the backend `namespace` makes its filter from, too. Pure
// functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace isogate::docker {

// What Docker takes inline as SecurityOpt `seccomp=…`, and podman from a file. Names, no numbers: an Engine
// leaves out those that its libseccomp does not know, and refuses them so. Of 32-bit x86 and x32 it has
// nothing: who calls those is killed.
const std::string& seccomp_profile();
nlohmann::json make_seccomp_profile();

}  // namespace isogate::docker
