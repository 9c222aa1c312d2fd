// The state that exec and the handlers of the front share. One of each, made by front_main, on the front's
// one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "gateway/config/config.h"
#include "gateway/front/backends/backends.h"
#include "gateway/front/base/byte_budget.h"
#include "gateway/front/base/changes.h"
#include "gateway/front/base/elsewhere.h"
#include "gateway/front/base/metrics.h"
#include "gateway/front/exec/admission.h"
#include "gateway/front/exec/spool_disk.h"
#include "gateway/front/http/auth.h"
#include "gateway/front/http/peer_lines.h"
#include "gateway/front/sandboxes/sandboxes.h"
#include "gateway/front/state/state.h"

namespace isogate::front {

class LongExecs;
namespace e2b {
struct ListenerState;
}

struct App {
  App(boost::asio::any_io_executor executor_, Config config_, std::unique_ptr<State> state_,
      Authenticator authenticator_, bool started_by_root)
      : executor(std::move(executor_)),
        elsewhere(executor),
        spool(executor),
        config(std::move(config_)),
        state(std::move(state_)),
        authenticator(std::move(authenticator_)),
        backends(executor, config),
        sandboxes(executor, backends, *state, config.instance, started_by_root),
        admission({.max_execs = config.limits.max_execs,
                   .max_execs_per_sandbox = config.limits.max_execs_per_sandbox,
                   .exec_queue = config.limits.exec_queue}),
        edit_ended(executor) {}

  boost::asio::any_io_executor executor;
  Elsewhere elsewhere;
  SpoolDisk spool;
  Config config;
  std::unique_ptr<State> state;
  Authenticator authenticator;
  WrongKeys wrong_keys;
  PeerLines peer_lines;
  Backends backends;
  Sandboxes sandboxes;
  Admission admission;
  std::shared_ptr<LongExecs> long_execs;    // set once; never null while requests are served
  std::shared_ptr<e2b::ListenerState> e2b;  // the same
  std::set<std::string> edits;              // under way, by tenant and agent
  Changes edit_ended;
  ByteBudget memory;
  Metrics metrics;
  std::function<size_t()> connections;
  bool draining = false;
};

}  // namespace isogate::front
