// Runs a credential plugin once. For credentials.cc only.
#pragma once

#include <chrono>
#include <string>

#include "plugins/k8s/client/kubeconfig/credentials.h"

namespace isogate::k8s {

struct PluginAnswer {
  Identity identity;  // without `authorization`
  std::string token;
  std::chrono::sys_seconds expires;  // coarse: nanoseconds end in 2262
};

// At most 30 s, and within the budget; then its process group is killed. It has this process's environment
// and its own variables, no input, and its stderr is discarded. Throws NetError.
PluginAnswer run_credential_plugin(const CredentialPlugin& plugin, const Budget& budget);

// Parses its output. Throws NetError, whose message has none of it.
PluginAnswer parse_exec_credential(const CredentialPlugin& plugin, const std::string& printed);

// Credentials without a plugin.
Identity read_identity(const CredentialFiles& files);

}  // namespace isogate::k8s
