#include <nlohmann/json.hpp>

#include "gateway/config/document.h"
#include "gateway/config/load.h"
#include "lib/text.h"

namespace isogate {
namespace {

template <typename Item>
Json items(const Setting& list, const std::vector<Item>& values);

struct Writer {
  const Setting& setting;

  Json operator()(const bool* value) const { return *value; }
  Json operator()(const uint32_t* value) const { return *value / setting.scale; }
  Json operator()(const uint64_t* value) const { return *value / setting.scale; }
  Json operator()(const double* value) const { return *value; }
  Json operator()(const std::string* value) const { return *value; }
  Json operator()(const TextList* value) const { return *value; }
  Json operator()(const TextMap* value) const {
    Json object = Json::object();
    for (const auto& [name, text] : *value) object[name] = text;
    return object;
  }
  Json operator()(AnyJson value) const { return Json::parse(*value.text); }
  template <typename Item>
  Json operator()(const std::vector<Item>* value) const {
    return items(setting, *value);
  }
};

Json choice(const Setting& setting, const Field& field) {
  if (const auto* text = std::get_if<std::string*>(&field)) return **text;
  uint32_t value = 0;
  if (const auto* number = std::get_if<uint32_t*>(&field)) value = **number;
  if (const auto* flag = std::get_if<bool*>(&field)) value = **flag ? 1 : 0;
  for (const Choice& one : setting.choices)
    if (one.value == value) return one.name;
  return nullptr;
}

Json value_of(const Setting& setting, const Field& field) {
  return setting.choices.empty() ? std::visit(Writer{setting}, field) : choice(setting, field);
}

Json object_of(std::span<const Setting> table, const void* owner) {
  Json object = Json::object();
  for (const Setting& setting : table) {
    const Json::json_pointer place("/" + join(split(setting.path, '.'), "/"));
    object[place] = value_of(setting, setting.field(const_cast<void*>(owner)));
  }
  return object;
}

template <typename Item>
Json items(const Setting& list, const std::vector<Item>& values) {
  Json array = Json::array();
  for (const Item& value : values) array.push_back(object_of(item_settings(list), &value));
  return array;
}

}  // namespace

Json default_value(const Setting& setting) { return value_of(setting, setting.field(nullptr)); }

std::string config_to_json(const Config& config) { return object_of(top_settings(), &config).dump(); }

std::vector<std::string> keep_start_settings(Config& config, const Config& running) {
  std::vector<std::string> changed;
  for (const Setting& setting : top_settings()) {
    if (!setting.needs_restart) continue;
    const Field to = setting.field(&config), from = setting.field(const_cast<Config*>(&running));
    if (value_of(setting, to) == value_of(setting, from)) continue;
    changed.emplace_back(setting.path);
    std::visit([&from](auto value) { *value = *std::get<decltype(value)>(from); }, to);
  }
  return changed;
}

}  // namespace isogate
