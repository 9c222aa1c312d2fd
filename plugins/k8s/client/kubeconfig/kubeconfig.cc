#include "plugins/k8s/client/kubeconfig/kubeconfig.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/loopback.h"
#include "lib/text.h"
#include "plugins/k8s/client/api_error.h"

namespace isogate::k8s {
namespace {

using nlohmann::json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

sdk::Error mistake(const std::string& path, const std::string& why) {
  return {ISOGATE_INVALID_ARGUMENT, "cannot use kubeconfig `" + path + "`: " + why};
}

// A part of a kubeconfig (a cluster, a user, a context) with its place, for messages without values. A field
// of another kind throws ISOGATE_INVALID_ARGUMENT; absent and null are empty.
class KubeconfigEntry {
 public:
  KubeconfigEntry(std::string path, std::string what, const YAML::Node& node)
      : path_(std::move(path)), what_(std::move(what)), node_(node.IsDefined() ? node : YAML::Node()) {
    if (!node_.IsMap() && !node_.IsNull()) throw k8s::mistake(path_, what_ + " is no object");
  }

  [[nodiscard]] std::string text(const char* field) const { return scalar(at(field), field); }

  [[nodiscard]] bool flag(const char* field) const {
    const std::string word = text(field);
    if (!word.empty() && word != "true" && word != "false") throw mistake(field, "is neither true nor false");
    return word == "true";
  }

  [[nodiscard]] std::string data(const char* field) const {  // base64, decoded
    std::string encoded = text(field);
    std::erase_if(encoded, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
    auto bytes = base64_decode(encoded);
    if (!bytes) throw mistake(field, "is no base64");
    return std::move(*bytes);
  }

  [[nodiscard]] std::string file(const char* field) const {  // relative to the kubeconfig's directory
    const std::string name = text(field), directory = path_.substr(0, path_.rfind('/') + 1);
    return name.empty() || name[0] == '/' ? name : (directory.empty() ? "./" : directory) + name;
  }

  [[nodiscard]] std::vector<std::string> texts(const char* field) const {
    std::vector<std::string> all;
    for (const YAML::Node& each : list(field)) all.push_back(scalar(each, field));
    return all;
  }

  [[nodiscard]] Pairs variables(const char* field) const {  // [{name: …, value: …}]
    Pairs all;
    for (const YAML::Node& each : list(field)) {
      const KubeconfigEntry one(path_, where(field), each);
      all.emplace_back(one.text("name"), one.text("value"));
      const std::string& name = all.back().first;
      if (name.empty() || name.find('=') != std::string::npos)
        throw mistake(field, "has a variable without name");
    }
    return all;
  }

  [[nodiscard]] Pairs lists(const char* field) const {  // {key: [value, …]}, a pair for each value
    Pairs all;
    const YAML::Node map = at(field);
    if (!map.IsNull() && !map.IsMap()) throw mistake(field, "is no object");
    for (const auto& pair : map) {
      const std::string key = scalar(pair.first, field);
      if (!pair.second.IsSequence()) throw mistake(field, "is no object of lists");
      for (const YAML::Node& value : pair.second) all.emplace_back(key, scalar(value, field));
    }
    return all;
  }

  [[nodiscard]] bool has(const char* field) const { return !at(field).IsNull(); }
  [[nodiscard]] KubeconfigEntry child(const char* field) const { return {path_, where(field), at(field)}; }
  [[nodiscard]] const YAML::Node& node() const { return node_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] std::string where(const std::string& field) const {  // "cluster `x`: certificate-authority"
    return what_.empty() ? field : what_ + ": " + field;
  }

  [[nodiscard]] sdk::Error mistake(const std::string& field, const std::string& why) const {
    return k8s::mistake(path_, where(field) + " " + why);
  }

 private:
  [[nodiscard]] YAML::Node at(const char* field) const {
    if (!node_.IsMap()) return {};
    const YAML::Node found = node_[field];  // of a const one [] adds nothing
    return found.IsDefined() ? found : YAML::Node();
  }

  [[nodiscard]] YAML::Node list(const char* field) const {  // null: it is absent
    YAML::Node found = at(field);
    if (!found.IsNull() && !found.IsSequence()) throw mistake(field, "is no list");
    return found;
  }

  [[nodiscard]] std::string scalar(const YAML::Node& node, const char* field) const {
    if (node.IsNull()) return {};
    if (!node.IsScalar()) throw mistake(field, "is no text");
    return node.Scalar();
  }

  std::string path_, what_;
  YAML::Node node_;
};

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
        return {path, std::string(key) + " `" + one_line(name, 80) + "`", each[key]};
      }
    }
    throw mistake(files(), why + ": there is no " + key + " `" + one_line(name, 80) + "`");
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

bool take_user_info(std::string_view& authority, Url& url) {
  const size_t at = authority.rfind('@');
  if (at == std::string_view::npos) return true;
  std::string_view user = authority.substr(0, at);
  authority.remove_prefix(at + 1);
  const auto name = percent_decode(next_part(user, ':'));
  const auto password = percent_decode(user);
  if (!name || !password) return false;
  url.user = *name;
  url.password = *password;
  return true;
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
  const bool is_here = !access.proxy && (access.host == "localhost" || is_loopback(access.host));
  relax(access, !access.tls && !is_here, "http://", cluster, "server", config);
}

Secret data_or_file(const KubeconfigEntry& user, const char* data, const char* file) {
  Secret secret{user.data(data), ""};
  if (secret.empty()) secret.file = user.file(file);
  if (!secret.file.empty()) (void)read_secret(secret, user.where(file));  // a name that leads nowhere, now
  return secret;
}

CredentialFiles files_of(const KubeconfigEntry& user) {
  CredentialFiles files;
  files.certificate = data_or_file(user, "client-certificate-data", "client-certificate");
  files.key = data_or_file(user, "client-key-data", "client-key");
  if (files.certificate.empty() != files.key.empty())
    throw user.mistake("client-certificate", "and client-key need each other");
  files.token.file = user.file("tokenFile");
  if (files.token.empty()) files.token.text = user.text("token");
  files.username = user.text("username");
  files.password = user.text("password");
  if (!files.token.empty() && !files.username.empty())
    throw user.mistake("username", "and token exclude each other");
  return files;
}

// yaml-cpp to JSON, for the extension that a plugin gets; all scalars but true and false are texts.
json to_json(const YAML::Node& node, int depth = 0) {
  constexpr int kDeepest = 32;
  if (depth > kDeepest || node.IsNull() || !node.IsDefined()) return nullptr;
  if (node.IsScalar()) {
    const std::string& text = node.Scalar();
    if (text == "true" || text == "false") return text == "true";
    return text;
  }
  if (node.IsSequence()) {
    json list = json::array();
    for (const YAML::Node& each : node) list.push_back(to_json(each, depth + 1));
    return list;
  }
  json object = json::object();
  for (const auto& pair : node) object[pair.first.Scalar()] = to_json(pair.second, depth + 1);
  return object;
}

json cluster_info(const ClusterAccess& access, const KubeconfigEntry& cluster) {
  json info = {{"server", cluster.text("server")}, {"config", nullptr}};
  if (!access.server_name.empty()) info["tls-server-name"] = access.server_name;
  if (!access.verify) info["insecure-skip-tls-verify"] = true;
  if (!access.authority.empty())
    info["certificate-authority-data"] =
        base64_encode(read_secret(access.authority, "certificate-authority"));
  if (access.proxy) info["proxy-url"] = cluster.text("proxy-url");
  const YAML::Node& node = cluster.node();
  const YAML::Node extensions = node["extensions"];
  if (!extensions.IsDefined() || !extensions.IsSequence()) return info;
  for (const YAML::Node& each : extensions) {
    const KubeconfigEntry extension(cluster.path(), cluster.where("extensions"), each);
    if (extension.text("name") == "client.authentication.k8s.io/exec")
      info["config"] = to_json(extension.child("extension").node());
  }
  return info;
}

CredentialPlugin plugin_of(const ClusterAccess& access, const KubeconfigEntry& user,
                           const KubeconfigEntry& cluster, CredentialFiles also) {
  const KubeconfigEntry exec = user.child("exec");
  CredentialPlugin plugin;
  plugin.api_version = exec.text("apiVersion");
  if (plugin.api_version != "client.authentication.k8s.io/v1" &&
      plugin.api_version != "client.authentication.k8s.io/v1beta1")
    throw exec.mistake("apiVersion", "has to be client.authentication.k8s.io/v1 or v1beta1");
  plugin.command = exec.text("command");
  if (plugin.command.empty()) throw exec.mistake("command", "is missing");
  if (plugin.command.find('/') != std::string::npos) plugin.command = exec.file("command");
  if (exec.text("interactiveMode") == "Always")
    throw exec.mistake("interactiveMode", "is Always, and a gateway has no terminal");
  plugin.install_hint = exec.text("installHint");
  plugin.args = exec.texts("args");
  plugin.env = exec.variables("env");
  json info = {
      {"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", {{"interactive", false}}}};
  if (exec.flag("provideClusterInfo")) info["spec"]["cluster"] = cluster_info(access, cluster);
  plugin.exec_info = info.dump(-1, ' ', true, json::error_handler_t::replace);
  plugin.also = std::move(also);
  if (!plugin.also.token.empty() || !plugin.also.username.empty())
    throw user.mistake("exec", "and token, tokenFile or username exclude each other");
  return plugin;
}

void impersonate(ClusterAccess& access, const KubeconfigEntry& user) {
  const std::string name = user.text("as");
  const auto add = [&](const std::string& header, const std::string& value, const char* field) {
    if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }))
      throw user.mistake(field, "holds what no name has");
    access.headers.emplace_back(header, value);
  };
  if (!name.empty()) add("Impersonate-User", name, "as");
  if (const std::string uid = user.text("as-uid"); !uid.empty()) add("Impersonate-Uid", uid, "as-uid");
  for (const auto& group : user.texts("as-groups")) add("Impersonate-Group", group, "as-groups");
  for (const auto& [key, value] : user.lists("as-user-extra"))
    add("Impersonate-Extra-" + percent_encode(key), value, "as-user-extra");
  if (name.empty() && !access.headers.empty()) throw user.mistake("as-groups", "needs `as`");
}

// `cluster`: passed to a plugin with provideClusterInfo.
void take_user(ClusterAccess& access, const KubeconfigEntry& user, const KubeconfigEntry& cluster) {
  if (user.has("auth-provider"))
    throw user.mistake("auth-provider", "is no longer a part of Kubernetes; use an exec plugin");
  CredentialFiles files = files_of(user);
  access.credentials = user.has("exec")
                           ? plugin_credentials(plugin_of(access, user, cluster, std::move(files)))
                           : file_credentials(std::move(files));
  impersonate(access, user);
}

}  // namespace

std::optional<Url> parse_url(std::string_view text) {
  Url url;
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  url.https = text.starts_with(kHttps);
  if (!url.https && !text.starts_with(kHttp)) return std::nullopt;
  text.remove_prefix(url.https ? kHttps.size() : kHttp.size());
  const auto printable_only = [](unsigned char c) { return c > ' ' && c < 0x7f && c != '?' && c != '#'; };
  if (!std::all_of(text.begin(), text.end(), printable_only)) return std::nullopt;
  const size_t slash = std::min(text.find('/'), text.size());
  std::string_view authority = text.substr(0, slash);
  url.path = text.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  if (!take_user_info(authority, url)) return std::nullopt;
  const auto place = split_host(authority);
  if (!place || !is_alnum_or(place->host, ".-:_") || place->host.size() >= 256) return std::nullopt;
  url.host = place->host;
  url.port = url.https ? 443 : 80;
  if (place->rest.empty()) return url;
  url.port = number_in<uint16_t>(place->rest.substr(1)).value_or(0);
  if (place->rest[0] != ':' || url.port == 0) return std::nullopt;
  return url;
}

ClusterAccess access_from(const std::vector<KubeconfigFile>& files, const AccessConfig& config) try {
  const Merged merged(files);
  const std::string name = config.context.empty() ? merged.current_context() : config.context;
  if (name.empty()) throw mistake(merged.files(), "it names no current-context, nor does the configuration");
  const KubeconfigEntry context = merged.find(
      "contexts", "context", name, config.context.empty() ? "current-context" : "the configured context");
  const std::string why = "context `" + one_line(name, 80) + "`";
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
