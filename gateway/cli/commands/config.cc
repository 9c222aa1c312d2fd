// isogate config check, show, schema, docs
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "gateway/base/lookup.h"
#include "gateway/base/privileges.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/effective_config.h"
#include "gateway/cli/output.h"
#include "gateway/cli/probe_hosts.h"
#include "gateway/cli/scratch_dir.h"
#include "gateway/config/plugin_place.h"
#include "gateway/config/settings.h"
#include "gateway/host/plugin/describe.h"
#include "gateway/supervisor/accounts.h"
#include "gateway/supervisor/state_dir.h"
#include "gateway/supervisor/tls_files.h"
#include "lib/redact.h"
#include "lib/text.h"
#include "runner/cgroup/cgroup_base.h"

namespace isogate::cli {
namespace {

struct CheckReport {
  std::vector<std::string> mistakes;  // one line each: place, setting, what is wrong
  std::vector<std::string> warnings;  // what a gateway starts with, and probably should not
  std::vector<std::string> notes;     // what does not keep a gateway from starting, or could not be looked at
  bool interrupted = false;           // by a signal, before everything was looked at
};

// What a configuration names, looked at as a start would: files, directories, users, and each backend by
// starting its backend host for a moment, with one probe.
class ConfigCheck {
 public:
  explicit ConfigCheck(const Loaded& loaded) : loaded_(loaded), config_(loaded.config) {}

  CheckReport run() {
    check_tls();
    check_log_file();
    check_unix_listeners();
    for (size_t i = 0; i < config_.shared_dirs.size(); ++i)
      check_directory("shared_dirs[" + std::to_string(i) + "].path", config_.shared_dirs[i].path);
    check_users();
    check_state_dir();
    check_backends();
    return std::move(report_);
  }

 private:
  void wrong(const std::string& path, const std::string& what) {
    report_.mistakes.push_back(setting_prefix(loaded_.places, path) + what);
  }
  void warn(const std::string& path, const std::string& what) {
    report_.warnings.push_back(setting_prefix(loaded_.places, path) + what);
  }

  static std::string directory_of(const std::string& file) {
    const size_t slash = file.rfind('/');
    return slash == std::string::npos ? "" : file.substr(0, std::max<size_t>(slash, 1));
  }

  void check_directory(const std::string& setting, const std::string& path) {
    if (path.empty()) return;
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0)
      wrong(setting, os_error("cannot find the directory `" + path + "`", errno).message);
    else if (!S_ISDIR(info.st_mode))
      wrong(setting, "`" + path + "` is no directory");
  }

  void check_log_file() {
    const size_t before = report_.mistakes.size();
    check_directory("log.file", directory_of(config_.log.file));
    struct stat info {};
    if (report_.mistakes.size() == before && !config_.log.file.empty() &&
        ::stat(config_.log.file.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
      wrong("log.file", "`" + config_.log.file + "` is a directory; name a file in it");
  }

  // No mistake: a service manager may make it at the start (RuntimeDirectory=).
  void check_unix_listeners() {
    constexpr std::string_view kUnixPrefix = "unix:";
    for (size_t i = 0; i < config_.listen.size(); ++i) {
      struct stat info {};
      if (!config_.listen[i].starts_with(kUnixPrefix)) continue;
      const std::string directory = directory_of(config_.listen[i].substr(kUnixPrefix.size()));
      if (::stat(directory.c_str(), &info) != 0 && errno == ENOENT)
        warn("listen[" + std::to_string(i) + "]", "there is no directory `" + directory +
                                                      "`, and the gateway does not create it: let the "
                                                      "service create it, or run: install -d -m 0755 " +
                                                      directory);
    }
  }

  // Of the accounts that it needs check_users() has reported those that are missing.
  void check_state_dir() {
    const auto accounts = supervisor::find_accounts(config_);
    if (!accounts.ok()) return;
    struct stat info {};
    const bool seen = ::stat(config_.state_dir.c_str(), &info) == 0;
    if (::geteuid() != 0 && (seen ? info.st_uid != ::geteuid() : errno == EACCES))
      return report_.notes.push_back("state_dir: `" + config_.state_dir +
                                     "` belongs to another user: only the gateway's user can check it");
    if (auto checked = supervisor::check_state_dir(config_, *accounts); !checked.ok())
      report_.mistakes.push_back(checked.error().message);
  }

  // Its message begins with the setting.
  void check_tls() {
    if (config_.tls.client_ca.empty() && loaded_.places.contains("tls.client_auth"))
      warn("tls.client_auth", "has no effect without `tls.client_ca`");
    auto read = supervisor::read_tls_files(config_.tls);
    if (read.ok()) return;
    const std::string& text = read.error().message;
    if (read.error().os_errno == EACCES && ::geteuid() != 0)
      return report_.notes.push_back(text + ": only the gateway's user can check it");
    const size_t colon = text.starts_with("tls.") ? text.find(": ") : std::string::npos;
    if (colon == std::string::npos) return wrong("tls", text);
    wrong(text.substr(0, colon), text.substr(colon + 2));
  }

  // Of those of root's gateway, some have no setting.
  void check_users() {
    const size_t before = report_.mistakes.size();
    for (size_t i = 0; i < config_.backends.size(); ++i) check_user(i);
    if (report_.mistakes.size() != before) return;
    if (auto found = supervisor::find_accounts(config_); !found.ok())
      report_.mistakes.push_back(found.error().message);
  }

  // The default, and groups, matter to root alone.
  void check_user(size_t i) {
    const auto& groups = config_.backends[i].groups;
    for (size_t j = 0; j < groups.size(); ++j) {
      const auto found = look_up_group(groups[j]);
      if (found.ok() && *found) continue;
      const std::string place = "backends[" + std::to_string(i) + "].groups[" + std::to_string(j) + "]",
                        why = found.ok() ? "there is no group `" + groups[j] + "`" : found.error().message;
      started_by_root() ? wrong(place, why) : warn(place, why);
    }
    const std::string& name = config_.backends[i].run_as;
    if (name == BackendConfig().run_as) return;
    const auto found = look_up_user(name);
    if (found.ok() && *found) return;
    wrong("backends[" + std::to_string(i) + "].run_as",
          found.ok() ? "there is no user `" + name + "`" : found.error().message);
  }

  void check_backends() {
    auto tried = probe_backends(config_, 1);
    report_.interrupted = !tried.ok() && tried.error().status == ISOGATE_CANCELLED;
    if (!tried.ok()) return report_.notes.push_back("no backend was tried: " + tried.error().message);
    for (size_t i = 0; i < tried->size(); ++i) {
      const ProbedBackend& backend = (*tried)[i];
      const std::string& reason = backend.candidate.reason;
      std::string path = "backends[" + std::to_string(i) + "]";
      if (backend.setting)
        wrong(backend.setting->empty() ? path : path + "." + *backend.setting, reason);
      else
        report_.notes.push_back("backend " + backend.config.name + ": " +
                                (reason.empty() ? plugin_file(config_, backend.config) : "note: " + reason));
      if (backend.candidate.probe) check_probed(path, backend);
    }
    if (report_.mistakes.empty()) check_choice(*tried);
  }

  // What has no effect, or does not work now.
  void check_probed(const std::string& path, const ProbedBackend& backend) {
    const ipc::Probe& probe = *backend.candidate.probe;
    const BackendConfig& config = backend.config;
    if (probe.verdict == ISOGATE_PROBE_UNAVAILABLE)
      report_.notes.push_back("backend " + config.name +
                              ": note: it is unavailable: " + printable(probe.detail, 1000));
    const uint64_t capabilities = probe.capabilities | backend.hello->capabilities;
    if (!config.images.empty() && (capabilities & ISOGATE_CAP_IMAGE) == 0)
      warn(path + ".images", "has no effect: this backend's sandboxes have no images");
    if (config.groups.empty() && config.run_as == BackendConfig().run_as) return;
    ScratchDir copies;
    if (auto made = copies.make(config_.state_dir); !made.ok()) return;
    const auto described = describe_plugin(plugin_file(config_, config), config.sha256, copies.path());
    if (!described.ok() || (described->flags & ISOGATE_PLUGIN_RUNS_AS_ROOT) == 0) return;
    const std::string why = "has no effect: the backend host of plugin `" + described->id +
                            "` stays root, with the capabilities that the plugin names";
    if (!config.groups.empty()) warn(path + ".groups", why);
    if (config.run_as != BackendConfig().run_as) warn(path + ".run_as", why);
  }

  void check_choice(const std::vector<ProbedBackend>& tried) {
    const front::Decision decision = choose(config_, tried);
    if (decision.chosen) return;
    std::string reasons;
    for (const auto& verdict : decision.verdicts)
      reasons += (reasons.empty() ? ": `" : " | `") + verdict.name + "`, " + verdict.reason;
    if (serves_with_limits(tried))
      report_.notes.push_back(
          "note: limits cannot be tried in the cgroup of this check, and what else a sandbox needs was not "
          "tried; as a service, `isogate serve` has a cgroup of its own" +
          reasons);
    else
      report_.warnings.push_back("no backend of this file can serve a call here" + reasons);
  }

  // Whether one is chosen if those that lack what a cgroup gives that has no processes keep their plugin's
  // promises.
  bool serves_with_limits(std::vector<ProbedBackend> tried) const {
    for (ProbedBackend& backend : tried) {
      auto& probe = backend.candidate.probe;
      if (!probe || probe->verdict != ISOGATE_PROBE_UNAVAILABLE ||
          probe->detail.find(kProcessesAbove) == std::string::npos)
        continue;
      probe->verdict = ISOGATE_PROBE_AVAILABLE;
      probe->isolation = backend.hello->isolation;
      probe->locality = backend.hello->locality;
      probe->capabilities |= backend.hello->capabilities;
    }
    return choose(config_, tried).chosen.has_value();
  }

  const Loaded& loaded_;
  const Config& config_;
  CheckReport report_;
};

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kHidden = "[hidden]";

// Values whose name says that they are secret, every text with a secret's shape, and the hashes of keys.
void hide_secrets(OrderedJson& value, const std::string& name) {
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

void hide_key_hashes(OrderedJson& document) {
  auto keys = document.find("keys");
  if (keys == document.end() || !keys->is_array()) return;
  for (auto& key : *keys) key["sha256"] = kHidden;
}

}  // namespace

int run_config_check(const ConfigOptions& options) {
  auto loaded = load_config(load_options(options));
  if (!loaded.ok()) return report_config(loaded.error());
  for (const std::string& warning : loaded->warnings) complain("warning: " + warning);
  for (const std::string& relaxation : loaded->relaxations) complain("relaxed: " + relaxation);
  const std::string file = loaded->file.empty() ? "defaults and environment" : loaded->file;
  const CheckReport report = ConfigCheck(*loaded).run();
  if (report.interrupted) return kInterrupted;
  for (const std::string& warning : report.warnings) complain(for_terminal("warning: " + warning));
  if (!report.mistakes.empty()) return report_config(mistakes("cannot use " + file, report.mistakes));
  print(file + ": valid\n");
  for (const std::string& note : report.notes) print(for_terminal(note + "\n"));
  return kDone;
}

int run_config_show(const ConfigOptions& options) {
  auto loaded = load_config(load_options(options));
  if (!loaded.ok()) return report_config(loaded.error());
  OrderedJson document = OrderedJson::parse(loaded->document);
  hide_key_hashes(document);
  hide_secrets(document, "");
  print(document.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
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
