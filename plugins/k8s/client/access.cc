#include "plugins/k8s/client/access.h"

#include <mutex>
#include <utility>

#include "lib/net/operator_file.h"
#include "lib/text.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/kubeconfig/kubeconfig.h"

namespace isogate::k8s {
namespace {

sdk::Error invalid(const std::string& message) { return {ISOGATE_INVALID_ARGUMENT, message}; }

// Those of a kubeconfig, which may embed them: it is read again once they are refused. Its cluster stays, and
// gets no credentials of another one.
class KubeconfigCredentials : public Credentials {
 public:
  using Shared = std::shared_ptr<Credentials>;
  KubeconfigCredentials(Shared first, std::function<Shared()> again)
      : again_(std::move(again)), now_(std::move(first)) {}

  Identity current(const Budget& budget) override {
    std::unique_lock lock(mutex_);
    const Shared now = now_;
    lock.unlock();
    Identity identity = now->current(budget);
    lock.lock();
    given_ = identity;
    return identity;
  }

  void refused(const Identity& identity) override {
    const std::lock_guard lock(mutex_);
    now_->refused(identity);
    if (given_ != identity) return;  // another thread has newer ones
    given_.reset();
    try {
      now_ = again_();
    } catch (const sdk::Error&) {  // it is just being written
    }
  }

 private:
  const std::function<Shared()> again_;
  std::mutex mutex_;
  Shared now_;
  std::optional<Identity> given_;
};

ClusterAccess read_files(const std::string& list, const std::string& who, const AccessConfig& config) {
  std::vector<KubeconfigFile> files;
  for (const std::string_view part : split(list, ':')) {
    const std::string path(part);
    if (path.empty()) continue;
    if (!path.starts_with('/'))  // a backend host runs in /, wherever the gateway was started
      throw invalid("cannot use " + who + ": `" + path + "` is no absolute path");
    if (auto text = net::read_operator_file(path)) files.push_back({path, std::move(*text)});
  }
  if (files.empty()) throw invalid("cannot use " + who + ": there is no file `" + list + "`");
  return access_from(files, config);
}

ClusterAccess from_files(const std::string& list, const std::string& who, const AccessConfig& config) {
  ClusterAccess access = read_files(list, who, config);
  const auto again = [=, source = access.source, server = access.text()] {
    ClusterAccess now = read_files(list, who, config);
    if (now.source != source || now.text() != server) throw invalid("it leads to another cluster now");
    return now.credentials;
  };
  access.credentials = std::make_shared<KubeconfigCredentials>(access.credentials, again);
  return access;
}

ClusterAccess from_pod(const AccessConfig& config, const Environment& environment) {
  const auto host = value_of(environment, "KUBERNETES_SERVICE_HOST");
  const auto port = value_of(environment, "KUBERNETES_SERVICE_PORT");
  if (!host || !port)
    throw invalid(
        "cannot find a cluster: this is no pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not "
        "set)" +
        std::string(config.in_cluster ? "" : ", and there is no kubeconfig"));
  const std::string& directory = config.service_account;
  ClusterAccess access;
  access.host = *host;
  access.port = number_in<uint16_t>(*port).value_or(0);
  if (access.port == 0) throw invalid("KUBERNETES_SERVICE_PORT is no port");
  access.authority.file = directory + "/ca.crt";
  (void)read_secret(access.authority, "the service account's authority");
  CredentialFiles files;
  files.token.file = directory + "/token";
  (void)read_secret(files.token, "the service account's token");
  access.credentials = file_credentials(std::move(files));
  access.name_space = config.name_space;
  if (access.name_space.empty())
    access.name_space = net::read_operator_file(directory + "/namespace").value_or("default");
  while (access.name_space.ends_with('\n')) access.name_space.pop_back();
  access.source = "the pod's service account";
  return access;
}

}  // namespace

std::string ClusterAccess::text() const {
  return (tls ? "https://" : "http://") + join_address(host, std::to_string(port)) + path;
}

ClusterAccess load_access(const AccessConfig& config, const Environment& environment) {
  if (config.in_cluster) return from_pod(config, environment);
  if (!config.kubeconfig.empty()) return from_files(config.kubeconfig, "the configured kubeconfig", config);
  if (const auto list = value_of(environment, "KUBECONFIG")) return from_files(*list, "KUBECONFIG", config);
  if (const auto home = value_of(environment, "HOME")) {
    const std::string path = *home + "/.kube/config";
    if (net::read_operator_file(path)) return from_files(path, "the kubeconfig", config);
  }
  return from_pod(config, environment);
}

}  // namespace isogate::k8s
