#include "plugins/k8s/client/kubeconfig/kubeconfig_user.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/text.h"
#include "plugins/k8s/client/url.h"

namespace isogate::k8s {
namespace {

using nlohmann::json;

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

}  // namespace

void take_user(ClusterAccess& access, const KubeconfigEntry& user, const KubeconfigEntry& cluster) {
  if (user.has("auth-provider"))
    throw user.mistake("auth-provider", "is no longer a part of Kubernetes; use an exec plugin");
  CredentialFiles files = files_of(user);
  access.credentials = user.has("exec")
                           ? plugin_credentials(plugin_of(access, user, cluster, std::move(files)))
                           : file_credentials(std::move(files));
  impersonate(access, user);
}

}  // namespace isogate::k8s
