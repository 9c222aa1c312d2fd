#include "plugins/k8s/client/kubeconfig/kubeconfig_entry.h"

#include "lib/text.h"

namespace isogate::k8s {

sdk::Error mistake(const std::string& path, const std::string& why) {
  return {ISOGATE_INVALID_ARGUMENT, "cannot use kubeconfig `" + path + "`: " + why};
}

KubeconfigEntry::KubeconfigEntry(std::string path, std::string what, const YAML::Node& node)
    : path_(std::move(path)), what_(std::move(what)), node_(node.IsDefined() ? node : YAML::Node()) {
  if (!node_.IsMap() && !node_.IsNull()) throw isogate::k8s::mistake(path_, what_ + " is no object");
}

YAML::Node KubeconfigEntry::at(const char* field) const {
  if (!node_.IsMap()) return {};
  const YAML::Node& node = node_;  // of a const one [] adds nothing
  YAML::Node found = node[field];
  return found.IsDefined() ? found : YAML::Node();
}

std::string KubeconfigEntry::scalar(const YAML::Node& node, const char* field) const {
  if (node.IsNull()) return {};
  if (!node.IsScalar()) throw mistake(field, "is no text");
  return node.Scalar();
}

std::string KubeconfigEntry::text(const char* field) const { return scalar(at(field), field); }

bool KubeconfigEntry::flag(const char* field) const {
  const std::string word = text(field);
  if (!word.empty() && word != "true" && word != "false") throw mistake(field, "is neither true nor false");
  return word == "true";
}

std::string KubeconfigEntry::data(const char* field) const {
  std::string encoded = text(field);
  std::erase_if(encoded, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
  auto bytes = base64_decode(encoded);
  if (!bytes) throw mistake(field, "is no base64");
  return std::move(*bytes);
}

std::string KubeconfigEntry::directory() const {
  const size_t slash = path_.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
}

std::string KubeconfigEntry::file(const char* field) const {
  std::string name = text(field);
  return name.empty() || name[0] == '/' ? name : directory() + "/" + name;
}

std::vector<std::string> KubeconfigEntry::texts(const char* field) const {
  const YAML::Node list = at(field);
  std::vector<std::string> all;
  if (list.IsNull()) return all;
  if (!list.IsSequence()) throw mistake(field, "is no list");
  for (const YAML::Node& each : list) all.push_back(scalar(each, field));
  return all;
}

std::vector<std::pair<std::string, std::string>> KubeconfigEntry::variables(const char* field) const {
  const YAML::Node list = at(field);
  std::vector<std::pair<std::string, std::string>> all;
  if (list.IsNull()) return all;
  if (!list.IsSequence()) throw mistake(field, "is no list");
  for (const YAML::Node& each : list) {
    const KubeconfigEntry one(path_, where(field), each);
    all.emplace_back(one.text("name"), one.text("value"));
    const std::string& name = all.back().first;
    if (name.empty() || name.find('=') != std::string::npos)
      throw mistake(field, "has a variable without name");
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> KubeconfigEntry::lists(const char* field) const {
  const YAML::Node map = at(field);
  std::vector<std::pair<std::string, std::string>> all;
  if (map.IsNull()) return all;
  if (!map.IsMap()) throw mistake(field, "is no object");
  for (const auto& pair : map) {
    const std::string key = scalar(pair.first, field);
    if (!pair.second.IsSequence()) throw mistake(field, "is no object of lists");
    for (const YAML::Node& value : pair.second) all.emplace_back(key, scalar(value, field));
  }
  return all;
}

bool KubeconfigEntry::has(const char* field) const { return !at(field).IsNull(); }

KubeconfigEntry KubeconfigEntry::child(const char* field) const { return {path_, where(field), at(field)}; }

std::string KubeconfigEntry::where(const std::string& field) const {
  return what_.empty() ? field : what_ + ": " + field;
}

sdk::Error KubeconfigEntry::mistake(const std::string& field, const std::string& why) const {
  return isogate::k8s::mistake(path_, where(field) + " " + why);
}

}  // namespace isogate::k8s
