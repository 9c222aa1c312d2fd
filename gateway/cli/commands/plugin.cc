// isogate plugin describe, list
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/effective_config.h"
#include "gateway/cli/output.h"
#include "gateway/cli/scratch_dir.h"
#include "gateway/host/plugin/describe.h"

namespace isogate::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

// `key  value` for what the JSON form holds, in its order.
std::string description_text(const OrderedJson& description) {
  std::string text;
  for (const auto& [key, value] : description.items()) {
    if (value.is_object() || key == "config_schema" || key == "warnings") continue;
    std::string shown = value.is_array()    ? listed(value)
                        : value.is_string() ? value.get<std::string>()
                                            : value.dump();
    text += key + std::string(key.size() < 20 ? 20 - key.size() : 1, ' ') + shown + "\n";
  }
  for (const auto& warning : description.value("warnings", OrderedJson::array()))
    text += "warning             " + warning.get<std::string>() + "\n";
  if (description.contains("config_schema") && !description["config_schema"].is_null())
    text += "config_schema\n" + description["config_schema"].dump(2) + "\n";
  return for_terminal(text);
}

Result<std::vector<std::string>> plugin_files(const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
    if (entry.path().extension() == ".so") files.push_back(entry.path().string());
  if (failed) return os_error("cannot list the plugins in `" + folder + "`", failed.value());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int run_plugin_describe(const PluginOptions& options) {
  std::error_code nowhere;
  const std::filesystem::path file = std::filesystem::absolute(options.file, nowhere);
  ScratchDir copies;
  const auto made = copies.make("");
  auto description = made.ok() ? describe_plugin(nowhere ? options.file : file.string(), "", copies.path())
                               : Result<Description>(made.error());
  if (!description.ok()) {
    complain(description.error().message);
    return kFailed;
  }
  std::string json = to_json(*description);
  if (!json.ends_with('\n')) json += '\n';
  print(options.json ? json : description_text(OrderedJson::parse(json)));
  return kDone;
}

int run_plugin_list(const PluginOptions& options) {
  auto loaded = load_config(load_options(options.config));
  if (!loaded.ok()) return report_config(loaded.error());
  auto files = plugin_files(loaded->config.plugin_dir);
  if (!files.ok()) {
    complain(files.error().message);
    return kFailed;
  }
  ScratchDir copies;
  if (auto made = copies.make(loaded->config.state_dir); !made.ok()) {
    complain(made.error().message);
    return kFailed;
  }
  bool all_good = true;
  OrderedJson list = OrderedJson::array();
  for (const std::string& file : *files) {
    auto description = describe_plugin(file, "", copies.path());
    all_good = all_good && description.ok();
    if (options.json)
      list.push_back(description.ok()
                         ? OrderedJson::parse(to_json(*description))
                         : OrderedJson{{"path", file}, {"refused", description.error().message}});
    else if (description.ok())
      print(for_terminal(description->id + " " + description->version + "  " + description->summary + "\n  " +
                         file + "\n"));
    else
      print(for_terminal("refused: " + description.error().message + "\n  " + file + "\n"));
  }
  if (options.json) print(OrderedJson{{"plugins", list}}.dump(2) + "\n");
  return all_good ? kDone : kFailed;
}

}  // namespace isogate::cli
