#include <nlohmann/json.hpp>

#include "gateway/config/document.h"
#include "lib/text.h"

namespace isogate {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::vector<std::string> parts(std::string_view text) {
  std::vector<std::string> list;
  if (trimmed(text, kBlanks).empty()) return list;
  for (const std::string_view part : split(text, ',')) list.emplace_back(trimmed(part, kBlanks));
  return list;
}

Json boolean(std::string_view text) {
  const std::string word = to_lower(std::string(trimmed(text, kBlanks)));
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  return std::string(text);  // the parser reports what was expected
}

Json number(std::string_view text) {
  text = trimmed(text, kBlanks);
  if (const auto whole = number_in<uint64_t>(text)) return *whole;
  if (const auto real = number_in<double>(text)) return *real;
  return std::string(text);
}

Json shared_dirs(std::string_view text) {
  Json list = Json::array();
  for (const std::string& part : parts(text)) {
    size_t colon = part.find(':');
    if (colon == std::string::npos) return std::string(text);
    list.push_back({{"prefix", part.substr(0, colon)}, {"path", part.substr(colon + 1)}});
  }
  return list;
}

Json variables(std::string_view text) {
  Json object = Json::object();
  for (const std::string& part : parts(text)) {
    size_t sign = part.find('=');
    if (sign == std::string::npos || object.contains(part.substr(0, sign))) return std::string(text);
    object[part.substr(0, sign)] = part.substr(sign + 1);
  }
  return object;
}

// A list of addresses may begin with a bracket, too: `[::1]:80`.
bool looks_like_json(std::string_view text, bool of_texts) {
  text = trimmed(text, kBlanks);
  return text.starts_with('{') || (text.starts_with('[') && (!of_texts || text.ends_with(']')));
}

}  // namespace

Json setting_from_text(const Setting& setting, const std::string& text, const std::string& name,
                       Problems& problems) {
  Field field = setting.field(nullptr);
  if (!setting.choices.empty() || std::holds_alternative<std::string*>(field)) return text;
  if (std::holds_alternative<bool*>(field)) return boolean(text);
  bool is_number = std::holds_alternative<uint32_t*>(field) || std::holds_alternative<uint64_t*>(field) ||
                   std::holds_alternative<double*>(field);
  if (is_number) return number(text);
  const bool of_texts = std::holds_alternative<TextList*>(field);
  if (looks_like_json(text, of_texts)) {
    Json value;
    Places inside;
    return read_yaml(text, name, value, inside, problems) ? value : Json();
  }
  if (std::holds_alternative<std::vector<SharedDirConfig>*>(field)) return shared_dirs(text);
  if (std::holds_alternative<TextMap*>(field)) return variables(text);
  if (of_texts || setting.path == "backends") return parts(text);
  return text;
}

}  // namespace isogate
