// The state that the parts of the supervisor share. supervisor_main makes one; it outlives them.
#pragma once

#include <string>

#include "gateway/base/tls_context.h"
#include "gateway/config/config.h"
#include "gateway/supervisor/accounts.h"
#include "gateway/supervisor/child.h"
#include "gateway/supervisor/log_relay.h"
#include "gateway/supervisor/state_dir.h"
#include "gateway/supervisor/supervisor.h"

namespace isogate::supervisor {

// What a configuration needs besides its own text, read at a start and at each reload.
struct Secrets {
  std::string local_key_sha256;  // empty: keys or client certificates are configured
  TlsMaterial tls;               // kept, so that a front can restart while the files are being renewed
};

struct Context {
  Config config;  // the one in force
  SupervisorTimings timings;
  Accounts accounts;
  StateDir state;
  Secrets secrets;
  Fd executable;
  LogRelay log;
  bool had_to_kill = false;  // this is not an orderly end

  Result<Child> start_front() {
    auto output = log.new_writer();
    if (!output) return output.error();
    return start_child({executable.get(), {"isogate", "_front"}, output->get()});
  }
  // Its logger's output goes with its start message.
  Result<Child> start_host(const std::string& backend) {
    auto output = log.new_quoted_writer(backend);
    if (!output) return output.error();
    return start_child({executable.get(), {"isogate", "_host", backend}, output->get()});
  }
};

}  // namespace isogate::supervisor
