// The texts of kubeconfig files, merged, to a ClusterAccess. For access.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/k8s/client/access.h"

namespace isogate::k8s {

struct KubeconfigFile {
  std::string path, text;
};

// An http:// or https:// address of a kubeconfig.
struct Url {
  bool https = false;
  std::string user, password;  // percent-decoded
  std::string host;            // without brackets
  uint16_t port = 0;           // as written, or the scheme's
  std::string path;            // without a '/' at its end: "" or "/a/b"
};

// Nothing if it is no URL, has a query or a fragment, or another scheme.
std::optional<Url> parse_url(std::string_view text);

// In the order of the list. Reads the certificate files that the chosen context names. Throws sdk::Error as
// load_access() does.
ClusterAccess access_from(const std::vector<KubeconfigFile>& files, const AccessConfig& config);

}  // namespace isogate::k8s
