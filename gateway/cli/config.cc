// isogate config check, show, schema, docs
#include <nlohmann/json.hpp>

#include "gateway/base/redact.h"
#include "gateway/cli/effective_config.h"
#include "gateway/cli/exit_code.h"
#include "gateway/cli/output.h"
#include "gateway/config/plugin_place.h"
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

// Notes, not errors: a file may name backends that this machine has no plugin for.
void note_plugins(const Config& config) {
  for (const BackendConfig& backend : config.backends) {
    auto there = check_plugin_there(config, backend);
    print(for_terminal("backend " + backend.name + ": " +
                       (there ? plugin_file(config, backend) : "note: " + there.error().message) + "\n"));
  }
}

}  // namespace

int run_config_check(const ConfigOptions& options) {
  auto loaded = load_config(load_options(options));
  if (!loaded.ok()) return report_config(loaded.error());
  for (const std::string& warning : loaded->warnings) complain("warning: " + warning);
  for (const std::string& relaxation : loaded->relaxations) complain("relaxed: " + relaxation);
  print((loaded->file.empty() ? "defaults and environment" : loaded->file) + ": valid\n");
  note_plugins(loaded->config);
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
