#include "plugins/namespace/config.h"

#include <nlohmann/json.hpp>

namespace isogate::ns {
namespace {

using nlohmann::json;

Result<void> take_number(const json& value, const std::string& name, uint64_t least, uint64_t most,
                         uint64_t& to) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() < least || value.get<uint64_t>() > most)
    return invalid("`" + name + "` of `namespace` must be an integer from " + std::to_string(least) + " to " +
                   std::to_string(most));
  to = value.get<uint64_t>();
  return {};
}

Result<void> take(const std::string& name, const json& value, Config& config) {
  if (name == "max_processes") return take_number(value, name, 16, 4194304, config.max_processes);
  if (name == "memory_mb") return take_number(value, name, 0, 16777216, config.memory_mb);
  if (name == "pids") return take_number(value, name, 0, 4194304, config.pids);
  if (name == "tmp_mb") return take_number(value, name, 1, 1048576, config.tmp_mb);
  if (name == "disk_mb" || name == "workspace_fs") return take_disk("namespace", name, value, config.disk);
  if (name == "cpus") {
    if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > 1000)
      return invalid("`cpus` of `namespace` must be a number from 0 to 1000");
    config.cpus = value.get<double>();
    return {};
  }
  if (name == "shm_mb") return take_number(value, name, 1, 65536, config.shm_mb);
  if (name == "profile") {
    if (value != "default" && value != "debug")
      return invalid("`profile` of `namespace` must be \"default\" or \"debug\"");
    config.debug = value == "debug";
    return {};
  }
  if (name == "root") {
    if (value.is_string()) config.root = value.get<std::string>();
    if (config.root.size() < 2 || !config.root.starts_with('/') || config.root.ends_with('/'))
      return invalid(
          "`root` of `namespace` must be an absolute path of a directory, without a slash at its end");
    return {};
  }
  if (name == "inits_ahead") {
    if (!value.is_boolean()) return invalid("`inits_ahead` of `namespace` must be true or false");
    config.inits_ahead = value.get<bool>();
    return {};
  }
  return invalid("the configuration of `namespace` has no setting `" + name + "`");
}

}  // namespace

Result<Config> parse_config(std::string_view text) {
  Config config;
  if (text.empty()) return config;
  const auto document = json::parse(text, nullptr, false);
  if (!document.is_object()) return invalid("the configuration of `namespace` is not a JSON object");
  for (const auto& [name, value] : document.items()) {
    if (auto taken = take(name, value, config); !taken) return taken.error();
  }
  if (const std::string why = why_no_limits("`namespace`", config.memory_mb, config.cpus, config.pids);
      !why.empty())
    return invalid(why);
  if (const std::string why = why_no_disk("`namespace`", config.disk); !why.empty()) return invalid(why);
  return config;
}

std::vector<std::string> relaxations_of(const Config& config) {
  std::vector<std::string> found;
  if (config.debug) found.emplace_back("profile: debug lets the programs of one exec trace each other");
  add_limits(found, "a sandbox", "", "this host", config.memory_mb, config.cpus, config.pids);
  add_disk(found, config.disk);
  return found;
}

}  // namespace isogate::ns
