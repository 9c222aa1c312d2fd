#include "gateway/cli/config_trial.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "gateway/cli/probe_hosts.h"
#include "gateway/config/plugin_place.h"
#include "gateway/supervisor/tls_files.h"

namespace isogate::cli {
namespace {

class Trial {
 public:
  explicit Trial(const Loaded& loaded) : loaded_(loaded), config_(loaded.config) {}

  TrialReport run() {
    check_tls();
    check_directory("log.file", directory_of(config_.log.file));
    for (size_t i = 0; i < config_.shared_dirs.size(); ++i)
      check_directory("shared_dirs[" + std::to_string(i) + "].path", config_.shared_dirs[i].path);
    for (size_t i = 0; i < config_.backends.size(); ++i) check_user(i);
    check_backends();
    return std::move(report_);
  }

 private:
  void wrong(const std::string& path, const std::string& what) {
    report_.mistakes.push_back(setting_prefix(loaded_.places, path) + what);
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

  // Its message begins with the setting.
  void check_tls() {
    auto read = supervisor::read_tls_files(config_.tls);
    if (read.ok()) return;
    const std::string& text = read.error().message;
    if (read.error().os_errno == EACCES && ::geteuid() != 0)
      return report_.notes.push_back(text + ": only the gateway's user can check it");
    const size_t colon = text.starts_with("tls.") ? text.find(": ") : std::string::npos;
    if (colon == std::string::npos) return wrong("tls", text);
    wrong(text.substr(0, colon), text.substr(colon + 2));
  }

  // The default matters to root alone, and is looked at with the hosts.
  void check_user(size_t i) {
    const std::string& name = config_.backends[i].run_as;
    if (::getpwnam(name.c_str()) != nullptr || name == BackendConfig().run_as) return;
    wrong("backends[" + std::to_string(i) + "].run_as", "there is no user `" + name + "`");
  }

  void check_backends() {
    auto tried = try_backends(config_);
    if (!tried.ok()) return report_.notes.push_back("no backend was tried: " + tried.error().message);
    for (size_t i = 0; i < tried->size(); ++i) {
      const ProbedBackend& backend = (*tried)[i];
      const std::string& reason = backend.candidate.reason;
      std::string path = "backends[" + std::to_string(i) + "]";
      if (backend.setting && !backend.setting->empty()) path += "." + *backend.setting;
      if (backend.setting)
        wrong(path, reason);
      else
        report_.notes.push_back("backend " + backend.config.name + ": " +
                                (reason.empty() ? plugin_file(config_, backend.config) : "note: " + reason));
    }
  }

  const Loaded& loaded_;
  const Config& config_;
  TrialReport report_;
};

}  // namespace

TrialReport try_config(const Loaded& loaded) { return Trial(loaded).run(); }

}  // namespace isogate::cli
