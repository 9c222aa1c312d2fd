// Any text as a kubeconfig is an access that can be used, or one error without a line break.
#include <cstdint>
#include <string>

#include "lib/text.h"
#include "plugins/k8s/client/kubeconfig/credential_plugin.h"
#include "plugins/k8s/client/kubeconfig/kubeconfig.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate::k8s;

void read_kubeconfig(const std::string& text) {
  for (const bool unverified : {false, true}) {
    AccessConfig config;
    config.allow_unverified_cluster = unverified;
    try {
      const ClusterAccess access = access_from({{"/nonexistent/config", text}}, config);
      require(!access.host.empty() && access.port != 0 && access.credentials != nullptr);
      require(unverified || (access.verify && access.relaxations.empty()));
      for (const auto& [name, value] : access.headers)
        require((name + value).find_first_of("\r\n") == std::string::npos);
    } catch (const isogate::sdk::Error& error) {
      require(error.status() == ISOGATE_INVALID_ARGUMENT);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_kubeconfig(text);
  read_kubeconfig(
      "{current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}], clusters: [{name: x, "
      "cluster: "
      "{server: 'https://x'}}], users: [{name: x, user: {" +
      text + "}}]}");
  if (const auto url = parse_url(text)) require(!url->host.empty() && !url->path.ends_with('/'));
  try {
    CredentialPlugin plugin;
    plugin.api_version = "client.authentication.k8s.io/v1";
    (void)parse_exec_credential(plugin, text);
  } catch (const isogate::sdk::Error& error) {
    require(error.status() == ISOGATE_PERMISSION_DENIED);
  }
  return 0;
}
