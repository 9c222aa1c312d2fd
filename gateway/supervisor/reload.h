// What a reload may change, and what waits for a restart.
#pragma once

#include <string>
#include <vector>

#include "gateway/supervisor/context.h"
#include "gateway/supervisor/listeners.h"

namespace isogate::supervisor {

struct ReloadSecrets {
  std::string local_key_sha256;  // empty when keys or client certificates are configured
  TlsMaterial tls;               // read anew
};

// What else this configuration needs; or why it must not be taken over by a gateway with these listeners.
Result<ReloadSecrets> check_reload(const Config& config, const Context& context,
                                   const std::vector<Listener>& listeners);

// `config` with the settings of `running` that only a start can change; each that differs is logged.
Config with_fixed_settings(Config config, const Config& running);

}  // namespace isogate::supervisor
