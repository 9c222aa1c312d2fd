#include "gateway/supervisor/reload.h"

#include "gateway/base/log.h"
#include "gateway/supervisor/local_key.h"

namespace isogate::supervisor {

Result<std::string> check_reload(const Config& config, const Context& context,
                                 const std::vector<Listener>& listeners) {
  if (auto served = check_listener_keys(listeners, config); !served) return served.error();
  if (auto accounts = find_accounts(config); !accounts) return accounts.error();
  if (!config.keys.empty()) return std::string();
  return local_key_sha256(context.state.root.get(), context.state.path);
}

Config with_fixed_settings(Config config, const Config& running) {
  const auto keep = [](const char* name, auto& to, const auto& from) {
    if (to != from) log::warn("setting needs a restart", {{"setting", name}});
    to = from;
  };
  keep("listen", config.listen, running.listen);
  keep("state_dir", config.state_dir, running.state_dir);
  keep("workdir", config.workdir, running.workdir);
  keep("instance", config.instance, running.instance);
  keep("log.file", config.log.file, running.log.file);
  return config;
}

}  // namespace isogate::supervisor
