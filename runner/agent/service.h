// The main thread: signals, orphans, dialling or listening, and the bytes that travel in frames, except those
// of sessions that outlive their streams. It never runs a call and never waits for one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runner/agent/link/listener.h"
#include "runner/agent/link/session.h"
#include "runner/agent/options.h"
#include "runner/agent/poller.h"
#include "runner/agent/signals.h"

namespace isogate::agent {

class Service {
 public:
  Result<void> open(const Options& options);
  // Runs to the end of this process; returns its exit status.
  int run();

 private:
  int dial_for_ever();
  int serve_stdio();
  int serve_sessions();
  int only_reap();
  // Serves it to its end. False: the client never sent a hello.
  bool serve(Fd in, Fd out);
  std::optional<Fd> dial();  // nullopt: this process is to end
  void attend(Session* session, int patience_ms);
  void look_after(Session& session);
  void sweep();

  Options options_;
  Signals signals_;
  Poller poller_;
  Place place_;
  std::vector<char> buffer_;
  Fd socket_watch_;  // while dialling: readable when the socket may exist now
  bool ending_ = false, orphans_left_ = false;
  int pause_ms_ = 0;
};

}  // namespace isogate::agent
