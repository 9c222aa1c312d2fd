#include "gateway/config/plugin_place.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>

#include "gateway/config/problems.h"

namespace isogate {
namespace {

bool is_there(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 || errno != ENOENT;
}

struct Close {
  void operator()(DIR* listing) const { ::closedir(listing); }
};

std::vector<std::string> installed(const std::string& plugin_dir) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, Close> listing(::opendir(plugin_dir.c_str()));
  if (listing == nullptr) return names;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name.ends_with(".so")) names.push_back(name.substr(0, name.size() - 3));
  }
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
