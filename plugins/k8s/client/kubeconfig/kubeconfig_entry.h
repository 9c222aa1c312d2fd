// One entry of a kubeconfig (a cluster, a user, a context) with its place, for messages without
// values. Includes yaml-cpp: for kubeconfig*.cc only.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <utility>
#include <vector>

#include "isogate/backend.hpp"

namespace isogate::k8s {

sdk::Error mistake(const std::string& path, const std::string& why);

class KubeconfigEntry {
 public:
  KubeconfigEntry(std::string path, std::string what, const YAML::Node& node);

  // Each throws ISOGATE_INVALID_ARGUMENT if the field is of another kind; absent and null are empty.
  [[nodiscard]] std::string text(const char* field) const;
  [[nodiscard]] bool flag(const char* field) const;
  [[nodiscard]] std::string data(const char* field) const;  // base64, decoded
  [[nodiscard]] std::string file(const char* field) const;  // relative to the kubeconfig's directory
  [[nodiscard]] std::vector<std::string> texts(const char* field) const;
  // [{name: …, value: …}], and {key: [value, …]} as one pair per value.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> variables(const char* field) const;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> lists(const char* field) const;
  [[nodiscard]] bool has(const char* field) const;
  [[nodiscard]] KubeconfigEntry child(const char* field) const;
  [[nodiscard]] const YAML::Node& node() const { return node_; }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string directory() const;
  [[nodiscard]] std::string where(const std::string& field) const;  // "cluster `x`: certificate-authority"
  [[nodiscard]] sdk::Error mistake(const std::string& field, const std::string& why) const;

 private:
  [[nodiscard]] YAML::Node at(const char* field) const;
  [[nodiscard]] std::string scalar(const YAML::Node& node, const char* field) const;
  std::string path_, what_;
  YAML::Node node_;
};

}  // namespace isogate::k8s
