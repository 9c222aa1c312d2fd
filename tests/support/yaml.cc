#include "tests/support/yaml.h"

#include <yaml-cpp/yaml.h>

#include <regex>

namespace isogate::test {
namespace {

using Json = nlohmann::json;

Json scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "null" || text == "~" || text.empty()) return nullptr;
  if (text == "true" || text == "false") return text == "true";
  static const std::regex integer("-?(0|[1-9][0-9]*)"), number("-?[0-9]+\\.[0-9]+");
  if (std::regex_match(text, integer)) return std::stoll(text);
  if (std::regex_match(text, number)) return std::stod(text);
  return text;
}

}  // namespace

Json from_yaml(const YAML::Node& node) {
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& pair : node) object[pair.first.Scalar()] = from_yaml(pair.second);
    return object;
  }
  if (node.IsSequence()) {
    Json array = Json::array();
    for (const auto& item : node) array.push_back(from_yaml(item));
    return array;
  }
  return node.IsNull() ? Json(nullptr) : scalar(node);
}

std::vector<Json> documents_of(const std::string& yaml) {
  std::vector<Json> found;
  for (const YAML::Node& each : YAML::LoadAll(yaml)) found.push_back(from_yaml(each));
  return found;
}

}  // namespace isogate::test
