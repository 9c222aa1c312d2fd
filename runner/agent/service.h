// The main thread: signals, orphans, dialling or listening, and the bytes that travel in frames, except those
// of sessions that outlive their streams. It never runs a call and never waits for one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "lib/fd.h"
#include "runner/agent/link/listener.h"
#include "runner/agent/link/session.h"
#include "runner/agent/options.h"
#include "runner/agent/poller.h"

namespace isogate::agent {

// The signals of this process, as descriptors to poll.
//
// As pid 1 it ends only by signals from outside its pid namespace, never by programs inside. The kernel
// reports the sender of a signal, and a sender from outside has no pid there.
class Signals {
 public:
  // Blocks them in this thread, and so in all it starts; the process ignores SIGPIPE from then on.
  Result<void> open();

  [[nodiscard]] int end_fd() const { return end_.get(); }      // SIGTERM, SIGINT: then should_end()
  [[nodiscard]] int child_fd() const { return child_.get(); }  // SIGCHLD: then forget_children()
  // Takes pending signals from end_fd(); true once this process must end. Any thread.
  bool should_end();
  void forget_children() const;

 private:
  Fd end_, child_;
  std::atomic<bool> ending_{false};
};

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
  std::optional<Fd> dial();  // nullopt: this process must end
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
