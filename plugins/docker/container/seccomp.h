// The seccomp profile of a container, as Engines take it: made from the table of
// runner/enclosure/syscall_policy.h, which the backend `namespace` makes its filter from, too. Pure
// functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace isogate::docker {

// The profile that Docker takes inline as SecurityOpt `seccomp=…`, and podman from a file. It has names,
// not numbers: an Engine leaves out names that its libseccomp does not know, and so refuses those calls. It
// has nothing for 32-bit x86 and x32: a program that makes such a call is killed.
const std::string& seccomp_profile();
nlohmann::json make_seccomp_profile();

}  // namespace isogate::docker
