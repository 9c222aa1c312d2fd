#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>

#include "gateway/config/document.h"
#include "lib/redact.h"
#include "lib/text.h"

namespace isogate {
namespace {

std::string joined(std::string_view prefix, std::string_view key) {
  if (key.empty()) return std::string(prefix);
  return prefix.empty() ? std::string(key) : std::string(prefix) + "." + std::string(key);
}

std::string shown(const Json& value) {
  if (value.is_null()) return "nothing";
  std::string text = redact(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::string_view start = utf8_prefix(text, 60);
  return std::string(start) + (start.size() < text.size() ? "…" : "");
}

// One object of the document against one table. `at` is the object's path in the document.
class ObjectReader {
 public:
  ObjectReader(std::span<const Setting> table, void* owner, std::string at, Problems& problems)
      : table_(table), owner_(owner), at_(std::move(at)), problems_(problems) {}

  void read(const Json& object) {
    if (!object.is_object()) return problems_.at(at_, "expected an object, got " + shown(object));
    read_group(object, "");
    for (const Setting& setting : table_)
      if (setting.required && !object.contains(setting.path))
        problems_.at(at_, "`" + std::string(setting.path) + "` is missing");
  }

 private:
  void read_group(const Json& object, const std::string& group) {
    for (const auto& [key, value] : object.items()) {
      std::string path = joined(group, key);
      const bool one_name = !key.empty() && key.find('.') == std::string::npos;
      auto found =
          std::find_if(table_.begin(), table_.end(), [&](const Setting& s) { return s.path == path; });
      if (one_name && found != table_.end())
        read_value(*found, value, joined(at_, path));
      else if (one_name && is_group(path))
        read_subgroup(value, path);
      else
        unknown(key, group);
    }
  }

  void read_subgroup(const Json& value, const std::string& group) {
    if (value.is_object()) return read_group(value, group);
    bool has_mode = has(group + ".mode");
    if (has_mode && value == Json(kBestEffort)) return read_group({{"mode", kBestEffort}}, group);
    std::string also = has_mode ? " or `best_effort`" : "";
    problems_.at(joined(at_, group), "expected an object" + also + ", got " + shown(value));
  }

  [[nodiscard]] bool has(std::string_view path) const {
    return std::any_of(table_.begin(), table_.end(), [&](const Setting& s) { return s.path == path; });
  }

  [[nodiscard]] bool is_group(const std::string& path) const {
    return std::any_of(table_.begin(), table_.end(),
                       [&](const Setting& s) { return s.path.starts_with(path + "."); });
  }

  // `cpus` and `cpu` for `cpu_percent`.
  static std::string same_first_word(const std::string& key, const std::vector<std::string>& known) {
    std::string word = key.substr(0, key.find_first_of("_-"));
    if (word.size() > 3 && word.back() == 's') word.pop_back();
    std::string found;
    for (const std::string& each : known) {
      if (word.size() < 3 || each.substr(0, each.find('_')) != word || each == found) continue;
      if (!found.empty()) return "";
      found = each;
    }
    return found;
  }

  // `limits: {max_execs: …}` for `limits.max_execs`.
  static std::string nested(std::string_view path) {
    const size_t dot = path.find('.');
    return std::string(path.substr(0, dot)) + ": {" + std::string(path.substr(dot + 1)) + ": …}";
  }

  void unknown(const std::string& key, const std::string& group) {
    std::vector<std::string> here, elsewhere;
    for (const Setting& setting : table_) {
      std::string_view rest = setting.path;
      if (!group.empty() && rest.substr(0, group.size() + 1) != group + ".") continue;
      if (!group.empty()) rest.remove_prefix(group.size() + 1);
      here.emplace_back(rest.substr(0, rest.find('.')));
    }
    std::string near = nearest(key, here);
    if (near.empty()) near = same_first_word(key, here);
    std::string meant = did_you_mean(near);
    for (const Setting& setting : top_settings())
      if (meant.empty() && setting.path.substr(setting.path.rfind('.') + 1) == key)
        meant = setting.path == key ? "; `" + key + "` stands at the top level"
                                    : did_you_mean(nested(setting.path));
    if (const std::string path = joined(group, key); has(path)) meant = did_you_mean(nested(path));
    std::string clean = shown(Json(key));
    problems_.unknown_key(joined(at_, joined(group, key)),
                          "unknown key `" + clean.substr(1, clean.size() - 2) + "`" +
                              (at_.empty() && group.empty() ? "" : " in `" + joined(at_, group) + "`") +
                              meant);
  }

  void wrong(const Setting& setting, const Json& value, const std::string& path,
             const std::string& expected) {
    const Grammar* grammar = setting.grammar;
    std::string text = "expected " + expected;
    if (grammar == nullptr || !grammar->secret) text += ", got " + shown(value);
    if (grammar != nullptr && value.is_number()) text += "; put it in quotes";
    if (grammar == nullptr && setting.choices.empty()) text += unit_of(path, value);
    if (grammar != nullptr && !grammar->hint.empty()) text += " (" + std::string(grammar->hint) + ")";
    if (!setting.choices.empty() && value.is_string()) text += did_you_mean(nearest_choice(setting, value));
    problems_.at(path, text);
  }

  // For "5s" or "256M" the unit that the setting has by its name.
  static std::string unit_of(std::string_view path, const Json& value) {
    constexpr std::pair<std::string_view, const char*> kUnits[] = {
        {"_sec", "seconds"},      {"_ms", "milliseconds"}, {"_mb", "MiB"},
        {"_bytes", "bytes"},      {"_percent", "percent"}, {"_bytes_per_sec", "bytes per second"},
        {"_mb_per_tenant", "MiB"}};
    std::string found;
    if (value.is_string() && is_digits(value.get_ref<const std::string&>().substr(0, 1)))
      for (const auto& [ending, unit] : kUnits)
        if (path.ends_with(ending)) found = std::string("; write a number of ") + unit + ", without a unit";
    return found;
  }

  static std::string nearest_choice(const Setting& setting, const Json& value) {
    std::vector<std::string> names;
    for (const Choice& choice : setting.choices) names.emplace_back(choice.name);
    return nearest(value.get<std::string>(), names);
  }

  void read_value(const Setting& setting, const Json& value, const std::string& path) {
    Field field = setting.field(owner_);
    if (!setting.choices.empty()) {
      if (!read_choice(setting, value, field)) wrong(setting, value, path, expected_value(setting));
      return;
    }
    bool good = std::visit([&](auto target) { return take(setting, value, path, target); }, field);
    if (!good) wrong(setting, value, path, expected_value(setting));
  }

  static bool read_choice(const Setting& setting, const Json& value, Field field) {
    if (!value.is_string()) return false;
    for (const Choice& choice : setting.choices) {
      if (choice.name != value.get<std::string>()) continue;
      if (auto* text = std::get_if<std::string*>(&field)) **text = choice.name;
      if (auto* number = std::get_if<uint32_t*>(&field)) **number = choice.value;
      if (auto* flag = std::get_if<bool*>(&field)) **flag = choice.value != 0;
      return true;
    }
    return false;
  }

  bool take(const Setting&, const Json& value, const std::string&, bool* target) {
    if (value.is_boolean()) *target = value.get<bool>();
    return value.is_boolean();
  }

  template <std::unsigned_integral Integer>
  bool take(const Setting& setting, const Json& value, const std::string&, Integer* target) {
    if (!value.is_number_integer()) return false;
    const auto number = value.get<double>();
    if ((number < setting.range.least || number > setting.range.most) && !(setting.or_zero && number == 0))
      return false;
    *target = static_cast<Integer>(value.get<uint64_t>() * setting.scale);
    return true;
  }

  bool take(const Setting& setting, const Json& value, const std::string&, double* target) {
    if (!value.is_number()) return false;
    auto number = value.get<double>();
    if (!std::isfinite(number) || number < setting.range.least || number > setting.range.most) return false;
    *target = number;
    return true;
  }

  static bool text_fits(const Setting& setting, const Json& value) {
    if (!value.is_string()) return false;
    const auto& text = value.get_ref<const std::string&>();
    return (text.empty() && setting.may_be_empty) || setting.grammar->accepts(text);
  }

  bool take(const Setting& setting, const Json& value, const std::string&, std::string* target) {
    if (!text_fits(setting, value)) return false;
    *target = value.get<std::string>();
    if (setting.grammar == &kKeyHash || setting.grammar == &kSha256) *target = to_lower(*target);
    return true;
  }

  bool take(const Setting& setting, const Json& value, const std::string& path, TextList* target) {
    if (!value.is_array()) return false;
    target->clear();
    for (size_t i = 0; i < value.size(); ++i) {
      if (text_fits(setting, value[i]))
        target->push_back(value[i].get<std::string>());
      else
        wrong(setting, value[i], path + "[" + std::to_string(i) + "]",
              std::string(setting.grammar->expected));
    }
    return true;
  }

  bool take(const Setting& setting, const Json& value, const std::string& path, TextMap* target) {
    if (!value.is_object()) return false;
    target->clear();
    for (const auto& [name, text] : value.items()) {
      std::string item = path + "." + name;
      if (!setting.grammar->accepts(name))
        problems_.at(path,
                     "expected " + std::string(setting.grammar->expected) + ", got " + shown(Json(name)));
      else if (!text.is_string())
        problems_.at(item,
                     "expected a text" +
                         std::string(text.is_number() || text.is_boolean() ? "; put it in quotes" : ""));
      else if (text.get_ref<const std::string&>().find('\0') != std::string::npos)
        problems_.at(item, "expected a text without NUL");
      else
        target->emplace_back(name, text.get<std::string>());
    }
    return true;
  }

  bool take(const Setting&, const Json& value, const std::string&, AnyJson target) {
    if (!value.is_object()) return false;
    *target.text = value.dump();
    return true;
  }

  template <typename Item>
  bool take(const Setting& setting, const Json& value, const std::string& path, std::vector<Item>* target) {
    if (!value.is_array()) return false;
    target->clear();
    for (size_t i = 0; i < value.size(); ++i) {
      Item item{};
      ObjectReader(item_settings(setting), &item, path + "[" + std::to_string(i) + "]", problems_)
          .read(value[i]);
      target->push_back(std::move(item));
    }
    return true;
  }

  std::span<const Setting> table_;
  void* owner_;
  std::string at_;
  Problems& problems_;
};

}  // namespace

std::string range_text(const Setting& setting) {
  if (setting.range.least == 0 && setting.range.most == 0) return {};
  auto number = [](double value) {
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr);
  };
  return (setting.or_zero ? "0, " : "") + number(setting.range.least) + " … " + number(setting.range.most);
}

std::string expected_value(const Setting& setting) {
  if (!setting.choices.empty()) return "one of `" + join(setting.choices, "`, `", &Choice::name) + "`";
  Field field = setting.field(nullptr);
  if (std::holds_alternative<bool*>(field)) return "true or false";
  std::string range = range_text(setting);
  if (size_t dots = range.find(" … "); dots != std::string::npos) range.replace(dots, 5, " to ");
  if (std::holds_alternative<double*>(field)) return "a number from " + range;
  if (setting.or_zero) return "0, or an integer from " + range.substr(3);
  if (!range.empty()) return "an integer from " + range;
  if (std::holds_alternative<std::string*>(field)) return std::string(setting.grammar->expected);
  if (std::holds_alternative<TextList*>(field)) return "a list of texts";
  if (std::holds_alternative<TextMap*>(field)) return "an object of texts";
  if (std::holds_alternative<AnyJson>(field)) return "an object";
  return "a list of objects";
}

void parse_config(const Json& document, Config& config, Problems& problems) {
  ObjectReader(top_settings(), &config, "", problems).read(document);
  for (BackendConfig& backend : config.backends)
    if (backend.plugin.empty()) backend.plugin = backend.name;
}

}  // namespace isogate
