#include "gateway/config/plugin_place.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "gateway/config/problems.h"

namespace isogate {
namespace {

bool is_there(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 || errno != ENOENT;
}

std::vector<std::string> installed(const std::string& plugin_dir) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(plugin_dir, ignored))
    if (entry.path().extension() == ".so") names.push_back(entry.path().stem().string());
  return names;
}

}  // namespace

std::string plugin_file(const Config& config, const BackendConfig& backend) {
  return backend.plugin.starts_with('/') ? backend.plugin : config.plugin_dir + "/" + backend.plugin + ".so";
}

Result<void> check_plugin_there(const Config& config, const BackendConfig& backend) {
  const std::string file = plugin_file(config, backend);
  if (is_there(file)) return {};
  const std::string missing = "plugin `" + backend.plugin + "` is not installed: no " + file;
  if (backend.plugin.starts_with('/')) return invalid(missing);
  if (!is_there(config.plugin_dir)) return invalid(missing + ", nor that directory; set `plugin_dir`");
  if (const std::string meant = nearest(backend.plugin, installed(config.plugin_dir)); !meant.empty())
    return invalid(missing + did_you_mean(meant));
  if (!backend.sha256.empty()) return invalid(missing + ", though `sha256` pins it");
  return Error{ISOGATE_NOT_FOUND, ENOENT,
               missing + "; install it, or set `plugin_dir`, or name the file by an absolute path"};
}

}  // namespace isogate
