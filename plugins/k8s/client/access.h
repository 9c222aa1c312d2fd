// The address of the cluster and the gateway's identity there, in kubectl's terms.
//
// load_access() reads files of the operator, touches no network and runs nothing; a credential plugin runs
// when the first request needs it. After a 401 the credentials of a kubeconfig are read again, also those
// that it embeds. Throws sdk::Error: ISOGATE_INVALID_ARGUMENT naming file, context and field, never a value.
// Any thread.
//
// Of a kubeconfig: contexts, the merge list of KUBECONFIG (the first file that has a name wins), CA and
// client certificates as data or files (relative to the kubeconfig), token, tokenFile (wins), username and
// password, exec plugins, tls-server-name, proxy-url (http://; CONNECT), as, as-uid, as-groups,
// as-user-extra, the context's namespace. Refused by name: auth-provider, and proxies other than http.
// HTTPS_PROXY and similar variables are ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/net/transport.h"
#include "plugins/common/environment.h"
#include "plugins/k8s/client/kubeconfig/credentials.h"

namespace isogate::k8s {

// The backend's configuration of the access.
struct AccessConfig {
  std::string kubeconfig;   // a file, or several separated by ':'; empty: as kubectl finds it
  std::string context;      // empty: current-context
  std::string name_space;   // empty: the context's, or "default"
  bool in_cluster = false;  // the pod's own service account, and nothing else
  // Admits insecure-skip-tls-verify, and http:// to another machine. Each that is used is in
  // ClusterAccess::relaxations.
  bool allow_unverified_cluster = false;
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";  // token, ca.crt, namespace
};

// A value. Secrets are behind `credentials`, and in `proxy`.
struct ClusterAccess {
  std::string host;  // without brackets
  uint16_t port = 443;
  std::string path;  // in front of each request's, "" or "/k8s/clusters/c-1"
  bool tls = true;
  bool verify = true;       // false: insecure-skip-tls-verify, see relaxations
  std::string server_name;  // which the certificate has to name, when not `host`
  Secret authority;         // PEM; empty: the system's
  std::optional<net::Proxy> proxy;
  std::shared_ptr<Credentials> credentials;
  std::vector<std::pair<std::string, std::string>> headers;  // impersonation
  std::string name_space;
  std::string source;                    // "context `x` of `/home/a/.kube/config`", for messages
  std::vector<std::string> relaxations;  // "insecure-skip-tls-verify", "http://": the backend logs them

  [[nodiscard]] std::string text() const;  // https://host:port/path
};

// In this order: config.in_cluster, config.kubeconfig, KUBECONFIG, ~/.kube/config, the pod's own service
// account (KUBERNETES_SERVICE_HOST). A name that leads nowhere is an error, never the next place; but files
// of a list may be missing as long as one is there.
ClusterAccess load_access(const AccessConfig& config,
                          const Environment& environment = variables_of_process());

}  // namespace isogate::k8s
