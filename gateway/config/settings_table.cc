#include <algorithm>
#include <nlohmann/json.hpp>

#include "gateway/config/document.h"
#include "gateway/config/settings_rows.h"
#include "lib/text.h"

namespace isogate {

std::span<const Setting> top_settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> rows;
    for (const auto part : {general_rows(), limit_rows(), backends_row()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return all;
}

std::span<const Setting> item_settings(const Setting& list) {
  if (list.path == "keys") return key_settings();
  if (list.path == "tls.clients") return tls_client_settings();
  if (list.path == "shared_dirs") return shared_dir_settings();
  if (list.path == "backends") return backend_settings();
  return {};
}

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

std::string details_of(const Setting& setting) {
  std::string text(setting.details);
  const auto add = [&text](const char* sentence) {
    text += (text.empty() ? "" : " ") + std::string(sentence);
  };
  if (setting.strictest != Strictest::kNone) add("The strictest source wins.");
  if (setting.needs_restart) add("A change needs a restart.");
  return text;
}

const Setting* find_top_setting(std::string_view path) {
  const auto all = top_settings();
  auto found = std::find_if(all.begin(), all.end(), [&](const Setting& s) { return s.path == path; });
  return found == all.end() ? nullptr : &*found;
}

std::string environment_name(std::string_view path) {
  std::string name = "ISOGATE_";
  for (char c : path) name += c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return name;
}

std::string flag_name(std::string_view path) {
  std::string name = "--";
  for (char c : path) name += c == '.' || c == '_' ? '-' : c;
  return name;
}

}  // namespace isogate
