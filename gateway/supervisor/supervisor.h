// The parent of all processes of `isogate serve`: opens the listening sockets, starts the front and
// one backend host per configured backend, restarts what dies, reloads and drains.
//
// One poll loop over a signalfd and the control sockets, and a thread that writes the log's file. It parses
// nothing that came from the network and loads no plugin.
//
// Signals: SIGTERM and SIGINT drain and stop, a second one stops at once; SIGHUP reloads; SIGUSR1 reopens
// the log file. Exit codes: 0 drained and stopped; 1 it could not start, something had to be killed, the
// front ended before it had drained, or a sandbox could not be closed and is left: the log names it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "gateway/base/budgets.h"
#include "gateway/config/config.h"
#include "gateway/config/load.h"
#include "lib/error.h"

namespace isogate {

// How long the supervisor waits. Tests shorten some of them.
struct SupervisorTimings {
  std::chrono::milliseconds ready{30000};       // start of a child to its `ready`
  std::chrono::milliseconds first_hosts{5000};  // the front serves once all have settled, or after this time
  std::chrono::milliseconds reload{10000};      // a reload, to the answer of a front that is ready
  std::chrono::milliseconds drain_extra{budget::kDrainExtra};  // beyond drain_timeout_sec
  std::chrono::milliseconds stop{
      budget::kHostStop};                           // `stop` to the end of a host, which closes its sandboxes
  std::chrono::milliseconds leave{budget::kLeave};  // a host whose front has died ends by itself
  std::chrono::milliseconds first_backoff{100};
  std::chrono::milliseconds longest_backoff{1600};
  std::chrono::milliseconds crash_window{60000};          // so many crashes …
  int crash_limit = 5;                                    // … within it: quarantined
  std::chrono::milliseconds never_probed_window{300000};  // the same of hosts that never answered a probe
};

struct ServeOptions {
  std::string config_path;                 // for messages; empty: no file
  std::vector<std::string> warnings;       // of loading, logged at every start
  std::vector<std::string> relaxations;    // logged at every start, as warnings
  SettingPlaces places;                    // of the configuration, for messages
  std::function<Result<Loaded>()> reload;  // SIGHUP: loads everything again; unset: not supported
  std::string child_executable = "/proc/self/exe";
  SupervisorTimings timings;
};

// Runs until a signal stops it; the process's exit code. [main] Takes over signal mask, subreaper and umask
// of the process. The log has been started, with process name "supervisor".
int supervisor_main(const Config& config, const ServeOptions& options);

}  // namespace isogate
