#include "gateway/config/plugin_place.h"

#include <sys/stat.h>

#include <cerrno>

namespace isogate {

std::string plugin_file(const Config& config, const BackendConfig& backend) {
  return backend.plugin.starts_with('/') ? backend.plugin : config.plugin_dir + "/" + backend.plugin + ".so";
}

Result<void> check_plugin_there(const Config& config, const BackendConfig& backend) {
  const std::string file = plugin_file(config, backend);
  struct stat info {};
  if (::lstat(file.c_str(), &info) == 0 || errno != ENOENT) return {};
  return Error{ISOGATE_NOT_FOUND, ENOENT,
               "plugin `" + backend.plugin + "` is not installed: no " + file +
                   "; install it, or set `plugin_dir`, or name the file by an absolute path"};
}

}  // namespace isogate
