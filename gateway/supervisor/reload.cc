#include "gateway/supervisor/reload.h"

#include "gateway/base/log.h"
#include "gateway/supervisor/local_key.h"
#include "gateway/supervisor/tls_files.h"

namespace isogate::supervisor {

Result<ReloadSecrets> check_reload(const Config& config, const Context& context,
                                   const std::vector<Listener>& listeners) {
  if (auto served = check_listener_keys(listeners, config); !served) return served.error();
  if (auto accounts = find_accounts(config); !accounts) return accounts.error();
  if (config.tls.enabled() != context.config.tls.enabled())
    return invalid("tls: it is switched on and off at a start alone; restart the gateway");
  ReloadSecrets secrets;
  auto tls = read_tls_files(config.tls);
  if (!tls) return tls.error();
  secrets.tls = std::move(*tls);
  if (config.names_callers()) return secrets;
  auto key = local_key_sha256(context.state.root.get(), context.state.path);
  if (!key) return key.error();
  secrets.local_key_sha256 = std::move(*key);
  return secrets;
}

Config with_fixed_settings(Config config, const Config& running) {
  const auto keep = [](const char* name, auto& to, const auto& from) {
    if (to != from) log::warn("setting needs a restart", {{"setting", name}});
    to = from;
  };
  keep("listen", config.listen, running.listen);
  keep("state_dir", config.state_dir, running.state_dir);
  keep("workdir", config.workdir, running.workdir);
  keep("metrics.listen", config.metrics.listen, running.metrics.listen);
  keep("instance", config.instance, running.instance);
  keep("log.file", config.log.file, running.log.file);
  return config;
}

}  // namespace isogate::supervisor
