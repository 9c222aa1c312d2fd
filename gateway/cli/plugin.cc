// isogate plugin describe, list
#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "gateway/cli/effective_config.h"
#include "gateway/cli/exit_code.h"
#include "gateway/cli/output.h"
#include "gateway/host/describe.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string joined(const Json& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + item.get<std::string>();
  return text.empty() ? "none" : text;
}

// `key  value` for what the JSON form holds, in its order.
std::string for_people(const Json& description) {
  std::string text;
  for (const auto& [key, value] : description.items()) {
    if (value.is_object() || key == "config_schema" || key == "warnings") continue;
    std::string shown = value.is_array()    ? joined(value)
                        : value.is_string() ? value.get<std::string>()
                                            : value.dump();
    text += key + std::string(key.size() < 20 ? 20 - key.size() : 1, ' ') + shown + "\n";
  }
  for (const auto& warning : description.value("warnings", Json::array()))
    text += "warning             " + warning.get<std::string>() + "\n";
  if (description.contains("config_schema") && !description["config_schema"].is_null())
    text += "config_schema\n" + description["config_schema"].dump(2) + "\n";
  return for_terminal(text);
}

Result<std::vector<std::string>> plugin_files(const std::string& folder) {
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return os_error("cannot list the plugins in `" + folder + "`", errno);
  std::vector<std::string> files;
  while (const dirent* entry = ::readdir(dir)) {
    std::string name = entry->d_name;
    if (name.size() > 3 && name.ends_with(".so")) files.push_back(folder + "/" + name);
  }
  ::closedir(dir);
  std::sort(files.begin(), files.end());
  return files;
}

std::string absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  char* here = ::realpath(".", nullptr);
  std::string text = here == nullptr ? path : std::string(here) + "/" + path;
  ::free(here);
  return text;
}

}  // namespace

int run_plugin_describe(const PluginOptions& options) {
  auto description = describe_plugin(absolute(options.file), "", "");
  if (!description.ok()) {
    complain(description.error().message);
    return kFailed;
  }
  std::string json = to_json(*description);
  if (!json.ends_with('\n')) json += '\n';
  print(options.json ? json : for_people(Json::parse(json)));
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
  bool all_good = true;
  Json list = Json::array();
  for (const std::string& file : *files) {
    auto description = describe_plugin(file, "", "");
    all_good = all_good && description.ok();
    if (options.json)
      list.push_back(description.ok() ? Json::parse(to_json(*description))
                                      : Json{{"path", file}, {"refused", description.error().message}});
    else if (description.ok())
      print(for_terminal(description->id + " " + description->version + "  " + description->summary + "\n  " +
                         file + "\n"));
    else
      print(for_terminal("refused: " + description.error().message + "\n  " + file + "\n"));
  }
  if (options.json) print(Json{{"plugins", list}}.dump(2) + "\n");
  return all_good ? kDone : kFailed;
}

}  // namespace isogate::cli
