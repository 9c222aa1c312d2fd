// The front over time: started, restarted when it dies, drained at the end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gateway/supervisor/backends/host_process.h"
#include "gateway/supervisor/context.h"
#include "gateway/supervisor/listeners.h"

namespace isogate::supervisor {

class FrontProcess {
 public:
  struct Events {
    std::function<void()> started;  // it runs and has its start message: backends can be announced to it
    std::function<void()> ready;
    std::function<void()> lost;
    std::function<void()> drained;
    std::function<void(const FromChild& record)> stuck;
    std::function<void(uint64_t number)> reloaded;
    std::function<void(uint64_t number, const std::string& why)> reload_refused;
    std::function<void(const std::string& reason)>
        hopeless;  // it cannot start, and another attempt would not help
  };
  FrontProcess(Context& context, const std::vector<Listener>& listeners, Events events);

  void start();
  // Does nothing while there is none.
  void send(std::string record, std::vector<Fd> fds) {
    process_.control.send(std::move(record), {}, std::move(fds));
  }
  void close();   // its control socket; it ends then
  void retire();  // its end is no longer a crash, and it is not restarted
  void kill(const std::string& why);

  void attend();
  void ended(int wait_status);
  void tick(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;

  [[nodiscard]] bool is(pid_t pid) const { return running() && process_.child.pid == pid; }
  [[nodiscard]] bool running() const { return process_.child.pid > 0; }
  [[nodiscard]] bool ready() const { return running() && ready_; }
  // It takes calls, ready or not.
  [[nodiscard]] bool serves() const { return running() && (ready_ || serves_); }
  // Its sockets are closed already, its end is not yet reported.
  [[nodiscard]] bool dying() const { return running() && process_.control.hung_up(); }
  [[nodiscard]] const ControlChannel& control() const { return process_.control; }

 private:
  void receive();
  void crashed(const std::string& reason);

  Context& context_;
  const std::vector<Listener>& listeners_;
  Events events_;
  ChildProcess process_;        // pid -1: there is none
  RestartPolicy early_, late_;  // crashes before and after ready
  std::optional<TimePoint> start_at_;
  std::string forbidden_call_;  // that it reported before its filter killed it
  bool ready_ = false, serves_ = false, retired_ = false;
};

}  // namespace isogate::supervisor
