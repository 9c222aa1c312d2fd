#include "gateway/config/settings.h"

#include <nlohmann/json.hpp>

#include "gateway/config/document.h"
#include "lib/text.h"

namespace isogate {
namespace {

std::string type_of(const Setting& setting) {
  if (!setting.choices.empty()) return join(setting.choices, " | ", &Choice::name);
  Field field = setting.field(nullptr);
  if (std::holds_alternative<bool*>(field)) return "boolean";
  if (std::holds_alternative<double*>(field)) return "number";
  if (std::holds_alternative<uint32_t*>(field) || std::holds_alternative<uint64_t*>(field)) return "integer";
  if (std::holds_alternative<std::string*>(field)) return "string";
  if (std::holds_alternative<TextMap*>(field) || std::holds_alternative<AnyJson>(field)) return "object";
  return "list";
}

std::string fallback_of(const Setting& setting) {
  if (!setting.fallback.empty()) return std::string(setting.fallback);
  return setting.required ? "" : default_value(setting).dump();
}

SettingInfo info_of(const Setting& setting, const std::string& prefix) {
  SettingInfo info;
  info.path = prefix + std::string(setting.path);
  info.type = type_of(setting);
  info.fallback = fallback_of(setting);
  info.fallback_in_words = !setting.fallback.empty();
  info.range = range_text(setting);
  info.historical = setting.historical;
  info.brief = setting.brief;
  info.details = details_of(setting);
  info.needs_restart = setting.needs_restart;
  if (!prefix.empty()) return info;
  info.environment = environment_name(setting.path);
  info.flag = flag_name(setting.path);
  return info;
}

std::vector<SettingInfo> all_settings() {
  std::vector<SettingInfo> list;
  for (const Setting& setting : top_settings()) {
    list.push_back(info_of(setting, ""));
    for (const Setting& item : item_settings(setting))
      list.push_back(info_of(item, std::string(setting.path) + "[]."));
  }
  return list;
}

}  // namespace

const std::vector<SettingInfo>& settings() {
  static const std::vector<SettingInfo> list = all_settings();
  return list;
}

}  // namespace isogate
