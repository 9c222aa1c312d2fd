#include "lib/json.h"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace isogate {

bool is_shallow(std::string_view json) {
  constexpr int kDeepest = 200;
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

nlohmann::json parse_shallow(std::string_view json) {
  return nlohmann::json::parse(is_shallow(json) ? json : "", nullptr, false);
}

const nlohmann::json& member(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

std::string text_at(const nlohmann::json& object, const char* key) {
  const nlohmann::json& found = member(object, key);
  return found.is_string() ? found.get<std::string>() : std::string();
}

}  // namespace isogate
