// isogate config check, show, schema, docs
#include <nlohmann/json.hpp>

#include "gateway/base/redact.h"
#include "gateway/cli/config_trial.h"
#include "gateway/cli/effective_config.h"
#include "gateway/cli/exit_code.h"
#include "gateway/cli/output.h"
#include "gateway/config/settings.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHidden = "[hidden]";

// Values whose name says that they are secret, every text with a secret's shape, and the hashes of keys.
void hide_secrets(Json& value, const std::string& name) {
  if (value.is_object()) {
    for (auto& [key, inner] : value.items()) hide_secrets(inner, key);
  } else if (value.is_array()) {
    for (auto& inner : value) hide_secrets(inner, name);
  } else if (is_secret_name(name)) {
    if (!value.is_boolean() && !value.is_null() && value != "") value = kHidden;
  } else if (value.is_string()) {
    value = redact(value.get<std::string>());
  }
}

void hide_key_hashes(Json& document) {
  auto keys = document.find("keys");
  if (keys == document.end() || !keys->is_array()) return;
  for (auto& key : *keys) key["sha256"] = kHidden;
}

// "cannot use …: 2 mistakes" and one line each, as load_config() has it.
int report_mistakes(const std::string& file, const std::vector<std::string>& mistakes) {
  std::string text = "cannot use " + file + ": " + std::to_string(mistakes.size()) +
                     (mistakes.size() == 1 ? " mistake" : " mistakes");
  for (const std::string& line : mistakes) text += "\n  " + line;
  return report_config(invalid(text));
}

}  // namespace

int run_config_check(const ConfigOptions& options) {
  auto loaded = load_config(load_options(options));
  if (!loaded.ok()) return report_config(loaded.error());
  for (const std::string& warning : loaded->warnings) complain("warning: " + warning);
  for (const std::string& relaxation : loaded->relaxations) complain("relaxed: " + relaxation);
  const std::string file = loaded->file.empty() ? "defaults and environment" : loaded->file;
  const TrialReport report = try_config(*loaded);
  if (!report.mistakes.empty()) return report_mistakes(file, report.mistakes);
  print(file + ": valid\n");
  for (const std::string& note : report.notes) print(for_terminal(note + "\n"));
  return kDone;
}

int run_config_show(const ConfigOptions& options) {
  auto loaded = load_config(load_options(options));
  if (!loaded.ok()) return report_config(loaded.error());
  Json document = Json::parse(loaded->document);
  hide_key_hashes(document);
  hide_secrets(document, "");
  print(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return kDone;
}

int run_config_schema() {
  print(config_json_schema());
  return kDone;
}

int run_config_docs() {
  print(config_docs_markdown());
  return kDone;
}

}  // namespace isogate::cli
