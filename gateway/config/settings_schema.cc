#include <nlohmann/json.hpp>

#include "gateway/config/document.h"
#include "gateway/config/settings.h"

namespace isogate {
namespace {

Json object_schema(std::span<const Setting> table);

Json text_schema(const Setting& setting) {
  Json schema = {{"type", "string"}};
  std::string pattern(setting.grammar->pattern);
  if (!pattern.empty()) schema["pattern"] = setting.may_be_empty ? "^$|" + pattern : pattern;
  return schema;
}

struct Typed {
  const Setting& setting;

  [[nodiscard]] Json number(const char* type) const {
    const Json range = {{"minimum", bound(setting.range.least)}, {"maximum", bound(setting.range.most)}};
    Json schema = {{"type", type}};
    if (setting.or_zero)
      schema["anyOf"] = {{{"const", 0}}, range};
    else
      schema.update(range);
    return schema;
  }
  static Json bound(double value) {
    auto whole = static_cast<int64_t>(value);
    return static_cast<double>(whole) == value ? Json(whole) : Json(value);
  }
  Json operator()(const bool*) const { return {{"type", "boolean"}}; }
  Json operator()(const uint32_t*) const { return number("integer"); }
  Json operator()(const uint64_t*) const { return number("integer"); }
  Json operator()(const double*) const { return number("number"); }
  Json operator()(const std::string*) const { return text_schema(setting); }
  Json operator()(const TextList*) const { return {{"type", "array"}, {"items", text_schema(setting)}}; }
  Json operator()(const TextMap*) const {
    return {{"type", "object"},
            {"propertyNames", {{"pattern", setting.grammar->pattern}}},
            {"additionalProperties", {{"type", "string"}}}};
  }
  Json operator()(AnyJson) const { return {{"type", "object"}}; }
  template <typename Item>
  Json operator()(const std::vector<Item>*) const {
    return {{"type", "array"}, {"items", object_schema(item_settings(setting))}};
  }
};

Json setting_schema(const Setting& setting) {
  Json schema;
  if (setting.choices.empty()) {
    schema = std::visit(Typed{setting}, setting.field(nullptr));
  } else {
    schema["enum"] = Json::array();
    for (const Choice& choice : setting.choices) schema["enum"].push_back(choice.name);
  }
  std::string text(setting.brief);
  if (const std::string details = details_of(setting); !details.empty()) text += " " + details;
  schema["description"] = text;
  if (setting.fallback.empty() && !setting.required) schema["default"] = default_value(setting);
  return schema;
}

Json closed_object() {
  return {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
}

Json object_schema(std::span<const Setting> table) {
  Json schema = closed_object();
  for (const Setting& setting : table) {
    std::string path(setting.path);
    size_t dot = path.find('.');
    Json* properties = &schema["properties"];
    if (dot != std::string::npos) {
      Json& group = (*properties)[path.substr(0, dot)];
      if (group.is_null()) group = closed_object();
      properties = &group["properties"];
    }
    (*properties)[path.substr(dot == std::string::npos ? 0 : dot + 1)] = setting_schema(setting);
    if (setting.required) schema["required"].push_back(path);
  }
  for (auto& [name, property] : schema["properties"].items()) {  // limits: best_effort
    if (!property.contains("properties") || !property["properties"].contains("mode")) continue;
    Json group = std::move(property);
    property = {{"oneOf", Json::array({{{"const", kBestEffort}}, std::move(group)})}};
  }
  return schema;
}

}  // namespace

std::string config_json_schema() {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "Configuration of isogate"}};
  schema.update(object_schema(top_settings()));
  return schema.dump(2) + "\n";
}

}  // namespace isogate
