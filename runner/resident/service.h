// The main thread: signals, strays, the dialling or the door, and the bytes that travel in frames, but for
// those of sessions that outlive their streams. It never runs a call and never waits for one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runner/resident/door.h"
#include "runner/resident/options.h"
#include "runner/resident/poller.h"
#include "runner/resident/session.h"
#include "runner/resident/signals.h"

namespace isogate::resident {

class Service {
 public:
  Result<void> open(const Options& options);
  // To the end of this process; its exit status.
  int run();

 private:
  int dial_for_ever();
  int serve_stdio();
  int serve_sessions();
  int only_reap();
  // Serves it to its end. False: the client never said hello.
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
  Fd door_;  // while dialling: readable when the socket may have come
  bool ending_ = false, strays_left_ = false;
  int pause_ms_ = 0;
};

}  // namespace isogate::resident
