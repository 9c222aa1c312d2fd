// Parses YAML of the project's own files as JSON, for tests. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace YAML {
class Node;
}

namespace isogate::test {

nlohmann::json from_yaml(const YAML::Node& node);

// All documents of a text; throws yaml-cpp's exceptions.
std::vector<nlohmann::json> documents_of(const std::string& yaml);

}  // namespace isogate::test
