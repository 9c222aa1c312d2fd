#include "plugins/k8s/client/kubeconfig/kubeconfig.h"

#include <yaml-cpp/yaml.h>

#include "lib/text.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/kubeconfig/kubeconfig_entry.h"
#include "plugins/k8s/client/kubeconfig/kubeconfig_user.h"
#include "plugins/k8s/client/url.h"

namespace isogate::k8s {
namespace {

// The files' stanzas.
class Merged {
 public:
  explicit Merged(const std::vector<KubeconfigFile>& files) {
    for (const auto& file : files) {
      try {
        documents_.push_back({file.path, YAML::Load(file.text)});
      } catch (const YAML::Exception& error) {
        throw mistake(file.path, "line " + std::to_string(error.mark.line + 1) + " is no YAML");
      }
      const YAML::Node& root = documents_.back().second;
      if (!root.IsMap() && !root.IsNull()) throw mistake(file.path, "it is no kubeconfig");
    }
  }

  [[nodiscard]] std::string current_context() const {
    for (const auto& [path, root] : documents_) {
      const std::string name = KubeconfigEntry(path, "", root).text("current-context");
      if (!name.empty()) return name;
    }
    return {};
  }

  // Of the first file that has it: `list` "contexts", `key` "context".
  [[nodiscard]] KubeconfigEntry find(const char* list, const char* key, const std::string& name,
                                     const std::string& why) const {
    for (const auto& [path, root] : documents_) {
      if (!root.IsMap()) continue;
      const YAML::Node all = root[list];
      if (!all.IsDefined() || all.IsNull()) continue;
      if (!all.IsSequence()) throw mistake(path, std::string(list) + " is no list");
      for (const YAML::Node& each : all) {
        if (!each.IsMap()) throw mistake(path, std::string(list) + " has an element that is no object");
        if (KubeconfigEntry(path, list, each).text("name") != name) continue;
        return {path, std::string(key) + " `" + printable(name, 80) + "`", each[key]};
      }
    }
    throw mistake(files(), why + ": there is no " + key + " `" + printable(name, 80) + "`");
  }

  [[nodiscard]] std::string files() const {
    std::string all;
    for (const auto& [path, root] : documents_) all += (all.empty() ? "" : ":") + path;
    return all;
  }

 private:
  std::vector<std::pair<std::string, YAML::Node>> documents_;
};

Secret authority_of(const KubeconfigEntry& cluster) {
  Secret authority{cluster.data("certificate-authority-data"), ""};
  if (authority.empty()) authority.file = cluster.file("certificate-authority");
  if (!authority.empty() &&
      read_secret(authority, cluster.where("certificate-authority")).find("-----BEGIN") == std::string::npos)
    throw cluster.mistake("certificate-authority", "is no PEM");
  return authority;
}

std::optional<net::Proxy> proxy_of(const KubeconfigEntry& cluster) {
  const std::string text = cluster.text("proxy-url");
  if (text.empty()) return std::nullopt;
  const auto url = parse_url(text);
  if (!url || url->https || !url->path.empty())
    throw cluster.mistake("proxy-url", "has to be http://host:port; other proxies are not supported");
  net::Proxy proxy{url->host, url->port, ""};
  if (!url->user.empty()) proxy.authorization = "Basic " + base64_encode(url->user + ":" + url->password);
  return proxy;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// The operator must permit whatever admits a man in the middle, and it is listed.
void relax(ClusterAccess& access, bool relaxed, const char* name, const KubeconfigEntry& cluster,
           const char* field, const AccessConfig& config) {
  if (!relaxed) return;
  if (!config.allow_unverified_cluster)
    throw cluster.mistake(field, std::string("(") + name +
                                     ") would let anybody pose as the API server; to accept that write "
                                     "allow_unverified_cluster: true");
  access.relaxations.emplace_back(name);
}

void take_cluster(ClusterAccess& access, const KubeconfigEntry& cluster, const AccessConfig& config) {
  const auto url = parse_url(cluster.text("server"));
  if (!url || !url->user.empty()) throw cluster.mistake("server", "has to be https://host[:port][/path]");
  access.host = url->host;
  access.port = url->port;
  access.path = url->path;
  access.tls = url->https;
  access.server_name = cluster.text("tls-server-name");
  access.verify = !cluster.flag("insecure-skip-tls-verify");
  access.authority = authority_of(cluster);
  if (!access.verify && !access.authority.empty())
    throw cluster.mistake("insecure-skip-tls-verify", "is set although there is a certificate authority");
  access.proxy = proxy_of(cluster);
  relax(access, !access.verify, "insecure-skip-tls-verify", cluster, "insecure-skip-tls-verify", config);
  relax(access, !access.tls && (access.proxy || !is_loopback(access.host)), "http://", cluster, "server",
        config);
}

}  // namespace

ClusterAccess access_from(const std::vector<KubeconfigFile>& files, const AccessConfig& config) try {
  const Merged merged(files);
  const std::string name = config.context.empty() ? merged.current_context() : config.context;
  if (name.empty()) throw mistake(merged.files(), "it names no current-context, nor does the configuration");
  const KubeconfigEntry context = merged.find(
      "contexts", "context", name, config.context.empty() ? "current-context" : "the configured context");
  const std::string why = "context `" + printable(name, 80) + "`";
  ClusterAccess access;
  access.source = why + " of `" + context.path() + "`";
  const std::string cluster_name = context.text("cluster"), user_name = context.text("user");
  if (cluster_name.empty()) throw context.mistake("cluster", "is missing");
  const KubeconfigEntry cluster = merged.find("clusters", "cluster", cluster_name, why);
  take_cluster(access, cluster, config);
  if (user_name.empty()) {
    access.credentials = file_credentials({});
  } else {
    take_user(access, merged.find("users", "user", user_name, why), cluster);
  }
  access.name_space = config.name_space.empty() ? context.text("namespace") : config.name_space;
  if (access.name_space.empty()) access.name_space = "default";
  return access;
} catch (const YAML::Exception&) {
  throw mistake(files.empty() ? "" : files.front().path, "it is no kubeconfig");
}

}  // namespace isogate::k8s
