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
  return config;
}

std::string relaxations_of(const Config& config) {
  if (config.debug) return "profile: debug lets the programs of one exec trace each other";
  return "";
}

}  // namespace isogate::ns
