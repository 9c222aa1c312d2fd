#include "gateway/config/load.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gateway/base/trusted_path.h"
#include "gateway/config/checks.h"
#include "gateway/config/document.h"
#include "lib/fd.h"
#include "lib/text.h"

extern char** environ;

namespace isogate {
namespace {

constexpr uint32_t kTenantShare = 50;  // percent, where several tenants are configured
constexpr size_t kMaxFile = 1 << 20;

// One tenant alone has all: nobody is there to be kept out.
void settle_tenant_share(Config& config) {
  if (config.limits.tenant_share_percent != 0) return;
  config.limits.tenant_share_percent = has_many_tenants(config) ? kTenantShare : 100;
}

Result<std::string> read_file(const std::string& path) {
  std::string attempt = "cannot read the configuration `" + path + "`";
  auto fd = open_settings_file(path, attempt);
  if (!fd) return fd.error();
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0) return os_error(attempt, errno);
  if (S_ISDIR(info.st_mode)) return invalid(attempt + ": it is a directory");
  return read_to_end(fd->get(), kMaxFile, attempt);
}

std::string variable_of(const TextPairs& environment, std::string_view name) {
  for (const auto& [key, value] : environment)
    if (key == name) return value;
  return {};
}

// One load: the sources are laid over each other in `document_`, weakest first.
class Loader {
 public:
  explicit Loader(const LoadOptions& options) : options_(options) {}

  Result<Loaded> load() {
    loaded_.file = options_.file.empty() ? variable("ISOGATE_CONFIG") : options_.file;
    if (!loaded_.file.empty())
      if (auto read = lay_file(); !read) return read.error();
    lay_environment();
    lay_flags();
    choose_backends();
    lay_port();
    parse_config(document_, loaded_.config, problems_);
    fill_places();
    settle_tenant_share(loaded_.config);
    problems_.values_read();
    check_together(loaded_.config, problems_);
    check_directories(loaded_.config, true, problems_);
    if (loaded_.config.backends.empty()) problems_.at("backends", "expected at least one backend");
    if (!problems_.none()) return failure();
    finish();
    return std::move(loaded_);
  }

 private:
  [[nodiscard]] std::string variable(std::string_view name) const {
    return variable_of(options_.environment, name);
  }

  Result<void> lay_file() {
    auto text = read_file(loaded_.file);
    if (!text) return text.error();
    if (!read_yaml(*text, loaded_.file, document_, places_, problems_)) return failure();
    if (document_.is_null() && options_.reload)
      problems_.plain(loaded_.file + ": it is empty; a restart reads it as the defaults");
    if (document_.is_null()) document_ = Json::object();
    if (!document_.is_object()) problems_.plain(loaded_.file + ": expected settings, `name: value`");
    if (!document_.is_object()) return failure();
    return {};
  }

  void lay(const Setting& setting, const std::string& text, const std::string& source) {
    if (!is_utf8(text)) return problems_.plain(source + ": not UTF-8");
    Json* at = &document_;
    std::string path(setting.path);
    if (size_t dot = path.find('.'); dot != std::string::npos) {
      at = &document_[path.substr(0, dot)];
      if (!at->is_object() && !at->is_null()) return;
      path = path.substr(dot + 1);
    }
    Json value = setting_from_text(setting, text, source, problems_);
    if (at->contains(path) && keeps(setting, (*at)[path], value, source)) return;
    if (setting.path == "backends" && names_only(value)) {
      chosen_ = value.get<TextList>();
      return;
    }
    if (setting.path == "backends") chosen_.clear();
    (*at)[path] = std::move(value);
    places_.forget(setting.path);
    places_.values[std::string(setting.path)] = source;
  }

  static bool names_only(const Json& value) {
    return value.is_array() && !value.empty() &&
           std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_string(); });
  }

  void lay_environment() {
    for (const Setting& setting : top_settings()) {
      std::string name = environment_name(setting.path), text = variable(name);
      std::string other(setting.other_variable), other_text = other.empty() ? "" : variable(other);
      const bool both = setting.strictest != Strictest::kNone;
      if (!text.empty() && !other_text.empty() && text != other_text && !both)
        loaded_.warnings.push_back("environment variable " + other + " is ignored: " + name +
                                   " says otherwise");
      if (both || text.empty())
        if (!other_text.empty()) lay(setting, other_text, "environment variable " + other);
      if (!text.empty()) lay(setting, text, "environment variable " + name);
    }
    warn_unknown_variables();
  }

  void warn_unknown_variables() {
    std::vector<std::string> known = options_.known_environment;
    known.emplace_back("ISOGATE_CONFIG");
    for (const Setting& setting : top_settings()) known.push_back(environment_name(setting.path));
    for (const auto& [name, value] : options_.environment) {
      if (name.rfind("ISOGATE_", 0) != 0 || std::find(known.begin(), known.end(), name) != known.end())
        continue;
      const std::string meant = nearest(name, known);
      loaded_.warnings.push_back(
          "environment variable " + name + " is no setting" +
          (meant.empty() ? "; `isogate config docs` lists those there are" : did_you_mean(meant)));
    }
  }

  void lay_flags() {
    for (const auto& [path, text] : options_.flags) {
      const Setting* setting = find_top_setting(path);
      if (setting != nullptr) {
        lay(*setting, text, "flag " + flag_name(path));
        continue;
      }
      std::vector<std::string> known;
      for (const Setting& one : top_settings()) known.emplace_back(one.path);
      problems_.plain("flag " + flag_name(path) + ": there is no setting `" + path + "`" +
                      did_you_mean(nearest(path, known)));
    }
    if (!options_.backends.empty()) chosen_ = options_.backends;
  }

  // Of `strictest` settings a value gives way to one at least as strict, and to nothing else; a mistaken one
  // stays there to be reported.
  bool keeps(const Setting& setting, const Json& before, const Json& value, const std::string& source) {
    if (setting.strictest == Strictest::kNone) return false;
    const auto old_rank = strictness(setting, before), rank = strictness(setting, value);
    if (!old_rank) return true;
    if (!rank || *rank >= *old_rank) return false;
    const std::string name(setting.path);
    loaded_.warnings.push_back(name + ": " + in_words(value) + " from " + source + " is ignored: " +
                               places_.of(name) + " says " + in_words(before) + ", and the strictest wins");
    return true;
  }

  static std::string in_words(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  }

  // Greater is stricter. Nothing: no value of this setting.
  static std::optional<int> strictness(const Setting& setting, const Json& value) {
    int rank = -1;
    if (setting.choices.empty() && value.is_boolean()) rank = value.get<bool>() ? 1 : 0;
    for (size_t i = 0; i < setting.choices.size(); ++i)
      if (value == Json(setting.choices[i].name)) rank = static_cast<int>(i);
    if (rank < 0) return {};
    return setting.strictest == Strictest::kFirst ? -rank : rank;
  }

  void choose_backends() {
    bool configured = document_.contains("backends");
    if (!configured) {
      document_["backends"] = Json::array();
      for (const std::string& name : kDefaultBackends) document_["backends"].push_back({{"name", name}});
      by_default_ = chosen_.empty();
    }
    if (chosen_.empty() || !document_["backends"].is_array()) return;
    Json before = std::move(document_["backends"]), after = Json::array();
    Places old = places_;
    places_.forget("backends");
    for (const std::string& name : chosen_) {
      size_t i = index_of(before, name);
      if (i < before.size()) {
        move_places(old, "backends[" + std::to_string(i) + "]",
                    "backends[" + std::to_string(after.size()) + "]");
        after.push_back(before[i]);
      } else {
        places_.values["backends[" + std::to_string(after.size()) + "]"] = "chosen backends";
        after.push_back({{"name", name}, {"plugin", name}});
        if (configured)
          loaded_.warnings.push_back("backend `" + name + "` is not configured: taken as plugin `" + name +
                                     "` without settings");
      }
    }
    document_["backends"] = std::move(after);
  }

  static size_t index_of(const Json& backends, const std::string& name) {
    for (size_t i = 0; i < backends.size(); ++i)
      if (backends[i].is_object() && backends[i].value("name", Json()) == Json(name)) return i;
    return backends.size();
  }

  void move_places(const Places& old, const std::string& from, const std::string& to) {
    for (const auto& [path, place] : old.values)
      if (path.rfind(from, 0) == 0) places_.values[to + path.substr(from.size())] = place;
    for (const auto& [path, place] : old.keys)
      if (path.rfind(from, 0) == 0) places_.keys[to + path.substr(from.size())] = place;
  }

  void lay_port() {
    if (options_.port < 0) return;
    if (options_.port > 65535) return problems_.plain("flag --port: expected 0 … 65535");
    Json listen = document_.value("listen", Json(Config().listen));
    if (!listen.is_array()) return;  // reported by parse_config
    for (Json& one : listen) {
      if (!one.is_string() || one.get_ref<const std::string&>().rfind("unix:", 0) == 0) continue;
      auto text = one.get<std::string>();
      one = text.substr(0, text.rfind(':') + 1) + std::to_string(options_.port);
      document_["listen"] = std::move(listen);
      return;
    }
    problems_.plain("flag --port: `listen` has no TCP address whose port it could be");
  }

  void fill_places() {
    Config& config = loaded_.config;
    if (config.state_dir.empty()) config.state_dir = default_state_dir(options_.environment);
    if (config.plugin_dir.empty() && places_.of("plugin_dir").empty())
      config.plugin_dir = default_plugin_dir();
    if (config.state_dir.empty() && problems_.none())
      problems_.plain("`state_dir`: there is no HOME to put it in; set `state_dir` to an absolute path");
  }

  [[nodiscard]] std::string default_plugin_dir() const {
    std::error_code failed;
    std::filesystem::path binary_dir = options_.binary_dir;
    if (binary_dir.empty())
      binary_dir = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
    for (const char* place : {"../plugins", "../lib/isogate/plugins"}) {
      std::filesystem::path beside = (binary_dir / place).lexically_normal();
      if (beside.is_absolute() && std::filesystem::is_directory(beside, failed)) return beside.string();
    }
    return "/usr/lib/isogate/plugins";
  }

  void finish() {
    Config& config = loaded_.config;
    if (by_default_ && !config.allow_unisolated)
      loaded_.warnings.push_back(
          std::string(loaded_.file.empty() ? "no configuration file" : "no `backends` configured") +
          ": the backends are " + std::string(find_top_setting("backends")->fallback) +
          ", for development (--allow-unisolated, ISOGATE_ALLOW_UNISOLATED=true)");
    for (std::string& warning : warnings_of(config)) loaded_.warnings.push_back(std::move(warning));
    loaded_.relaxations = relaxations_of(config);
    loaded_.document = config_to_json(config);
    loaded_.places = places_.values;
  }

  [[nodiscard]] Error failure() const { return mistakes("cannot load the configuration", problems_.lines()); }

  const LoadOptions& options_;
  Loaded loaded_;
  Json document_ = Json::object();
  Places places_;
  Problems problems_{places_};
  TextList chosen_;
  bool by_default_ = false;
};

}  // namespace

TextPairs process_environment() {
  TextPairs pairs;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string text = *entry;
    if (size_t sign = text.find('='); sign != std::string::npos)
      pairs.emplace_back(text.substr(0, sign), text.substr(sign + 1));
  }
  return pairs;
}

std::string default_state_dir(const TextPairs& environment) {
  if (::geteuid() == 0) return "/var/lib/isogate";
  const std::string state = variable_of(environment, "XDG_STATE_HOME"),
                    home = variable_of(environment, "HOME");
  if (is_absolute_path(state)) return state + "/isogate";
  return is_absolute_path(home) ? home + "/.local/state/isogate" : "";
}

std::string setting_prefix(const SettingPlaces& places, std::string_view path) {
  const std::string place = Places{{}, places}.of(path);
  return (place.empty() ? "" : place + ": ") + "`" + std::string(path) + "`: ";
}

Error mistakes(const std::string& attempt, const std::vector<std::string>& lines) {
  const char* what = lines.size() == 1 ? " mistake" : " mistakes";
  return invalid(attempt + ": " + std::to_string(lines.size()) + what + "\n  " + join(lines, "\n  "));
}

Result<Loaded> load_config(const LoadOptions& options) {
  try {
    return Loader(options).load();
  } catch (const nlohmann::json::exception& error) {
    return Error{ISOGATE_INTERNAL, 0, std::string("cannot load the configuration: ") + error.what()};
  }
}

bool has_many_tenants(const Config& config) {
  std::set<std::string> tenants;
  for (const auto& key : config.keys) tenants.insert(key.tenant);
  for (const auto& client : config.tls.clients) tenants.insert(client.tenant);
  return tenants.size() > 1;
}

Result<Config> config_from_json(const std::string& document, bool follow_links) {
  Config config;
  Places nowhere;
  Problems problems(nowhere);
  try {
    parse_config(Json::parse(document), config, problems);
  } catch (const nlohmann::json::exception& error) {
    return invalid(std::string("cannot read the effective configuration: ") + error.what());
  }
  settle_tenant_share(config);
  problems.values_read();
  check_together(config, problems);
  check_directories(config, follow_links, problems);
  if (problems.none()) return config;
  return invalid("cannot read the effective configuration:\n  " + join(problems.lines(), "\n  "));
}

}  // namespace isogate
