// A backend host at work: serves the front's calls until the front, the supervisor or a stop message ends
// it, then cancels what runs, closes the sandboxes and leaves nothing. [main]
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "gateway/host/calls.h"
#include "gateway/host/in_flight.h"
#include "gateway/host/sandboxes.h"
#include "gateway/host/workers.h"

namespace isogate {

class Server {
 public:
  // `most_calls` at once; further ones wait in the socket.
  Server(Instance& instance, Fd front, int control, size_t most_calls);

  // Returns the exit code of the process. Ends the process instead when a plugin does not return from a
  // cancelled call.
  int run();

 private:
  bool serve(ipc::Received received);
  ipc::Reply answer(ipc::Call call);
  void front_ended(const Error& why);
  void wait_for_end();
  bool read_control();
  int stop();

  Fd front_;
  int control_;
  Fd wake_;
  Sandboxes sandboxes_;
  Calls calls_;
  InFlight in_flight_;
  Workers workers_;
  std::atomic<bool> broken_ = false;  // by the front
  std::mutex reason_mutex_;
  std::string reason_;
  uint32_t close_mode_ = ISOGATE_CLOSE_DETACH;
};

}  // namespace isogate
