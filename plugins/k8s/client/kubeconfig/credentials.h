// The gateway's current credentials for the API server: a fixed token, a file that is read again, the
// output of a credential plugin. Any thread; shared by all copies of a ClusterAccess.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/net/budget.h"

namespace isogate::k8s {

using net::Budget;

// Secrets: never log them, never put them into a message.
struct Identity {
  std::string authorization;     // the header, "Bearer …" or "Basic …"; empty: none
  std::string certificate, key;  // PEM; empty: none shown
  bool operator==(const Identity&) const = default;
};

// A PEM text or token: given directly, or in the operator's file `file`, which is read again once a minute.
struct Secret {
  std::string text, file;
  [[nodiscard]] bool empty() const { return text.empty() && file.empty(); }
};

// The text, or what its file holds now. Throws ISOGATE_INVALID_ARGUMENT naming `field` and the file.
std::string read_secret(const Secret& secret, const std::string& field);

class Credentials {
 public:
  virtual ~Credentials() = default;
  // The credentials that are valid now; reads the file or runs the plugin if necessary, one thread
  // for all. Throws NetError: ISOGATE_PERMISSION_DENIED with the file or program that does not give
  // any, ISOGATE_CANCELLED.
  virtual Identity current(const Budget& budget) = 0;
  // The API server answered 401 to `identity`, or it is broken: the next current() gets new credentials,
  // unless that was done already.
  virtual void refused(const Identity& identity) = 0;
};

struct CredentialFiles {
  Secret certificate, key, token;
  std::string username, password;  // instead of a token
};
std::unique_ptr<Credentials> file_credentials(CredentialFiles files);

// An exec plugin of a kubeconfig, client.authentication.k8s.io/v1 or v1beta1. Run without a terminal, at most
// 30 s; its output is valid until its expirationTimestamp, or a 401. The message of a failure has its exit
// code, not its output.
struct CredentialPlugin {
  std::string api_version, command, install_hint;
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;
  std::string exec_info;  // KUBERNETES_EXEC_INFO, JSON
  CredentialFiles also;   // for example a certificate, if the plugin returns only a token
};
std::unique_ptr<Credentials> plugin_credentials(CredentialPlugin plugin);

}  // namespace isogate::k8s
