// A backend host at work: serves the front's calls until the front, the supervisor or a stop message ends
// it, then cancels what runs, closes the sandboxes and leaves nothing. [main]
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <string_view>

#include "gateway/host/calls.h"
#include "gateway/host/sandboxes.h"
#include "gateway/host/workers.h"

namespace isogate {

// The calls that are running, so that all of them can be cancelled when the backend host ends. [any]
class InFlight {
 public:
  // Registered while it lives; `cancel_fd`, or whatever else ends the call, stays open that long, as
  // `function` does.
  class Call {
   public:
    Call(InFlight& owner, int cancel_fd, std::string_view function);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();
    // False once cancel_all() has run: the call must not begin.
    [[nodiscard]] bool admitted() const { return admitted_; }

   private:
    InFlight& owner_;
    bool admitted_;
    std::list<std::pair<int, std::string_view>>::iterator place_;
  };

  // Permanent: fires every cancel_fd that is an event, and admits no more calls.
  void cancel_all();

  // Of the plugin's functions those that they are in: "exec, read".
  std::string functions();

 private:
  std::mutex mutex_;
  std::list<std::pair<int, std::string_view>> calls_;
  bool closed_ = false;
};

class Server {
 public:
  // `most_calls` at once; further ones wait in the socket.
  Server(Instance& instance, Fd front, int control, size_t most_calls);

  // Returns the exit code of the process. Ends the process instead when a plugin does not return from a
  // cancelled call.
  int run();
  // After run(): a sandbox could not be closed, so the plugin's destroy() must not be called.
  [[nodiscard]] bool left_open() const { return left_open_; }

 private:
  bool serve(ipc::Received received);
  ipc::Reply answer(ipc::Call call);
  void front_ended(const Error& why);
  void wait_for_end();
  bool read_control();
  int stop();

  const std::string backend_;
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
  uint32_t close_mode_ = ISOGATE_CLOSE_DETACH;  // until the supervisor names another
  bool left_open_ = false;
};

}  // namespace isogate
