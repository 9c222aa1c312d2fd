#define VALIJSON_USE_EXCEPTIONS 1  // otherwise a broken schema aborts the process

#include "gateway/config/schema.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>
#include <vector>

#include "gateway/config/problems.h"
#include "lib/redact.h"
#include "lib/text.h"

namespace isogate {
namespace {

using Plain = nlohmann::json;
using Adapter = valijson::adapters::NlohmannJsonAdapter;
using Path = std::vector<std::string>;
constexpr size_t kMaxMisfits = 20, kMaxRuleDepth = 64;

Result<Plain> parse(const std::string& text, const std::string& what) {
  try {
    return Plain::parse(text);
  } catch (const Plain::exception& error) {
    return invalid(what + ": not JSON: " + error.what());
  }
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// ["<root>", "[limits]", "[0]"] without its root and brackets.
Path path_of(const valijson::ValidationResults::Error& error) {
  Path path;
  for (size_t i = 1; i < error.context.size(); ++i) {
    const std::string& part = error.context[i];
    bool bracketed = part.size() > 1 && part.front() == '[' && part.back() == ']';
    path.push_back(bracketed ? part.substr(1, part.size() - 2) : part);
  }
  return path;
}

const Plain* value_at(const Plain& document, const Path& path) {
  Plain::json_pointer at;
  for (const std::string& part : path) at /= part;
  return document.contains(at) ? &document[at] : nullptr;
}

const Plain* referred(const Plain& schema, const Plain& reference) {
  if (!reference.is_string() || reference.get_ref<const std::string&>().rfind("#", 0) != 0) return nullptr;
  try {
    return &schema.at(Plain::json_pointer(reference.get<std::string>().substr(1)));
  } catch (const Plain::exception&) {
    return nullptr;
  }
}

const Plain* rule_of_child(const Plain& rule, const std::string& part) {
  if (rule.contains("properties") && rule["properties"].contains(part)) return &rule["properties"][part];
  for (const char* rest : {"items", "additionalProperties"})
    if (rule.contains(rest) && rule[rest].is_object()) return &rule[rest];
  return nullptr;
}

// The rules for the value at `path` below that of `rule`, where they are unambiguous; nullptr: not found.
const Plain* find_rule(const Plain& schema, const Plain* rule, std::span<const std::string> path,
                       size_t depth = 0) {
  if (rule == nullptr || !rule->is_object() || depth > kMaxRuleDepth) return nullptr;
  if (rule->contains("$ref")) return find_rule(schema, referred(schema, (*rule)["$ref"]), path, depth + 1);
  if (path.empty()) return rule;
  if (const Plain* found = find_rule(schema, rule_of_child(*rule, path[0]), path.subspan(1), depth + 1))
    return found;
  for (const char* many : {"oneOf", "anyOf", "allOf"}) {
    if (!rule->contains(many) || !(*rule)[many].is_array()) continue;
    for (const Plain& one : (*rule)[many])
      if (const Plain* found = find_rule(schema, &one, path, depth + 1)) return found;
  }
  return nullptr;
}

std::string quoted_end(const std::string& text) {  // "…: 'name'." or "… 'name'."
  size_t end = text.rfind('\''),
         begin = end == std::string::npos || end == 0 ? end : text.rfind('\'', end - 1);
  return begin == std::string::npos || begin == end ? "" : text.substr(begin + 1, end - begin - 1);
}

std::string unknown_key(const std::string& name, const Plain* rule) {
  std::vector<std::string> known;
  if (rule != nullptr && rule->contains("properties"))
    for (const auto& [key, value] : (*rule)["properties"].items()) known.push_back(key);
  return "unknown key `" + name + "`" + did_you_mean(nearest(name, known));
}

std::string listed(const Plain& values) {
  if (!values.is_array()) return values.is_string() ? values.get<std::string>() : values.dump();
  return join(values, ", ",
              [](const Plain& value) { return value.is_string() ? value.get<std::string>() : value.dump(); });
}

// "best_effort or object" for the alternatives of a rule; nothing where it has none.
std::string alternatives(const Plain* rule) {
  std::string text;
  for (const char* many : {"oneOf", "anyOf"}) {
    if (rule == nullptr || !rule->contains(many) || !(*rule)[many].is_array()) continue;
    for (const Plain& one : (*rule)[many])
      for (const char* key : {"const", "enum", "type"})
        if (one.is_object() && one.contains(key)) {
          text += (text.empty() ? "" : " or ") + listed(one[key]);
          break;
        }
  }
  return text;
}

std::string expectation(const std::string& misfit, const Plain* rule) {
  auto has = [&](const char* key) { return rule != nullptr && rule->contains(key); };
  if (contains(misfit, "'type'") && has("type")) return "expected " + listed((*rule)["type"]);
  if (contains(misfit, "enum") && has("enum")) return "expected one of " + listed((*rule)["enum"]);
  if (contains(misfit, "'const'") && has("const")) return "expected " + listed((*rule)["const"]);
  if (contains(misfit, "'pattern'") && has("pattern"))
    return "expected a text like " + listed((*rule)["pattern"]);
  if (std::string either = alternatives(rule); !either.empty()) return "expected " + either;
  return misfit.substr(0, misfit.find_last_not_of('.') + 1);
}

std::string got(const Path& path, const Plain* value) {
  bool secret =
      std::any_of(path.begin(), path.end(), [](const std::string& part) { return is_secret_name(part); });
  if (value == nullptr || secret) return "";
  std::string text = redact(value->dump(-1, ' ', false, Plain::error_handler_t::replace));
  std::string_view start = utf8_prefix(text, 60);
  return ", got " + std::string(start) + (start.size() < text.size() ? "…" : "");
}

std::string describe(const std::string& misfit, const Path& path, const Plain* rule, const Plain* value) {
  if (contains(misfit, "Missing required property")) return "`" + quoted_end(misfit) + "` is missing";
  if (contains(misfit, "'additionalProperties'")) return unknown_key(quoted_end(misfit), rule);
  return expectation(misfit, rule) + got(path, value);
}

// What only repeats that something below did not fit.
bool echo(const std::string& misfit) {
  return contains(misfit, "schema associated with") || contains(misfit, "Failed to validate item #") ||
         contains(misfit, "against child schema #");
}

std::string misfits(valijson::ValidationResults& results, const Plain& schema, const Plain& document) {
  std::string text;
  std::set<std::string> listed;
  valijson::ValidationResults::Error error;
  while (results.popError(error)) {
    if (echo(error.description)) continue;
    Path path = path_of(error);
    std::string where = join(path, ".");
    std::string line =
        (where.empty() ? "" : "`" + where + "`: ") +
        describe(error.description, path, find_rule(schema, &schema, path), value_at(document, path));
    if (!listed.insert(line).second) continue;
    if (listed.size() > kMaxMisfits) return text + "; and more";
    text += (text.empty() ? " " : "; ") + line;
  }
  return text;
}

// Patterns are compiled when they are first applied. Throws std::regex_error.
void compile_patterns(const Plain& rule) {
  if (rule.is_array())
    for (const Plain& each : rule) compile_patterns(each);
  if (!rule.is_object()) return;
  for (const auto& [key, value] : rule.items()) {
    if (key == "enum" || key == "const" || key == "default" || key == "examples") continue;
    if (key == "pattern" && value.is_string()) std::regex(value.get<std::string>());
    if (key == "patternProperties" && value.is_object())
      for (const auto& [pattern, of_it] : value.items()) (void)std::regex(pattern);
    compile_patterns(value);
  }
}

// Throws std::exception.
void compile(const Plain& schema, valijson::Schema& rules) {
  valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
  parser.populateSchema(Adapter(schema), rules);
}

// Where keys are named and nothing is said of others; none: nowhere. Alternatives are not looked into.
std::optional<std::string> open_object(const Plain& schema, const Plain* rule, const std::string& path,
                                       std::set<const Plain*>& seen) {
  rule = find_rule(schema, rule, {});
  if (rule == nullptr || !seen.insert(rule).second) return std::nullopt;
  if (rule->contains("properties") && !rule->contains("additionalProperties")) return path;
  for (const char* named : {"properties", "patternProperties"}) {
    if (!rule->contains(named) || !(*rule)[named].is_object()) continue;
    for (const auto& [key, value] : (*rule)[named].items())
      if (auto found = open_object(schema, &value, path + "." + key, seen)) return found;
  }
  if (rule->contains("additionalProperties"))
    if (auto found = open_object(schema, &(*rule)["additionalProperties"], path + ".*", seen)) return found;
  return rule->contains("items") ? open_object(schema, &(*rule)["items"], path + "[]", seen) : std::nullopt;
}

// It, or each of its alternatives, says what becomes of other keys.
bool is_closed(const Plain& schema, const Plain* rule, std::set<const Plain*>& seen) {
  rule = find_rule(schema, rule, {});
  if (rule == nullptr) return false;
  if (rule->contains("additionalProperties")) return true;
  if (!seen.insert(rule).second) return false;
  for (const char* any : {"oneOf", "anyOf"}) {
    if (!rule->contains(any) || !(*rule)[any].is_array() || (*rule)[any].empty()) continue;
    const auto closed = [&](const Plain& one) { return is_closed(schema, &one, seen); };
    if (std::all_of((*rule)[any].begin(), (*rule)[any].end(), closed)) return true;
  }
  seen.erase(rule);
  return false;
}

Result<void> check_closed(const Plain& schema, const std::string& what) {
  std::set<const Plain*> alternatives, rules;
  const auto open = is_closed(schema, &schema, alternatives) ? open_object(schema, &schema, "config", rules)
                                                             : std::optional<std::string>("config");
  if (!open) return {};
  return invalid(what + ": its JSON Schema accepts any key in `" + *open +
                 "`, so that a mistyped one would be ignored: add \"additionalProperties\" there, false or "
                 "what other keys may be");
}

Error broken_schema(const std::string& what, const std::string& why) {
  return invalid(what + ": its JSON Schema is broken: " + why);
}

}  // namespace

Result<void> check_schema(const std::string& schema, const std::string& what) {
  auto schema_json = parse(schema, what + ": its JSON Schema is broken");
  if (!schema_json) return schema_json.error();
  if (!schema_json->is_object()) return broken_schema(what, "expected an object");
  try {
    compile_patterns(*schema_json);
    valijson::Schema rules;
    compile(*schema_json, rules);
    const Plain nothing = Plain::object();
    (void)valijson::Validator(valijson::Validator::kStrongTypes).validate(rules, Adapter(nothing), nullptr);
    return check_closed(*schema_json, what);
  } catch (const std::exception& error) {
    return broken_schema(what, error.what());
  }
}

Result<void> validate_json(const std::string& schema, const std::string& document, const std::string& what) {
  auto schema_json = parse(schema, what + ": its JSON Schema is broken");
  if (!schema_json) return schema_json.error();
  if (!schema_json->is_object()) return broken_schema(what, "expected an object");
  auto document_json = parse(document, what);
  if (!document_json) return document_json.error();
  valijson::Schema rules;
  try {
    compile(*schema_json, rules);
  } catch (const std::exception& error) {
    return broken_schema(what, error.what());
  }
  try {
    valijson::Validator validator(valijson::Validator::kStrongTypes);
    valijson::ValidationResults results;
    if (validator.validate(rules, Adapter(*document_json), &results)) return {};
    return invalid(what + " does not fit its schema:" + misfits(results, *schema_json, *document_json));
  } catch (const std::exception& error) {
    return invalid(what + " cannot be checked: " + error.what());
  }
}

}  // namespace isogate
