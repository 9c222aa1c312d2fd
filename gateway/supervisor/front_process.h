// The front over time: started, restarted when it dies, drained at the end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gateway/supervisor/backends/restart_policy.h"
#include "gateway/supervisor/context.h"
#include "gateway/supervisor/control.h"
#include "gateway/supervisor/listeners.h"

namespace isogate::supervisor {

class FrontProcess {
 public:
  struct Events {
    std::function<void()> started;  // it runs and has its start message: backends can be announced to it
    std::function<void()> ready;
    std::function<void()> lost;
    std::function<void()> drained;
    std::function<void(const std::string& backend, uint64_t generation, const std::string& why)> stuck;
    std::function<void(uint64_t number)> reloaded;
    std::function<void(uint64_t number, const std::string& why)> reload_refused;
    std::function<void(const std::string& reason)>
        hopeless;  // it cannot start, and another attempt would not help
  };
  FrontProcess(Context& context, const std::vector<Listener>& listeners, Events events);

  void start();
  void send(std::string record, std::vector<Fd> fds) { control_.send(std::move(record), {}, std::move(fds)); }
  void close();                       // its control socket; it ends then
  void retire() { retired_ = true; }  // its end is no longer a crash, and it is not restarted
  void kill(const std::string& why);

  void attend();
  bool ended(pid_t pid, int wait_status);  // false: not the front
  void tick(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;

  [[nodiscard]] bool is(pid_t pid) const { return running() && child_.pid == pid; }
  [[nodiscard]] bool running() const { return child_.pid > 0; }
  [[nodiscard]] bool ready() const { return running() && ready_; }
  [[nodiscard]] bool dying() const { return running() && control_.hung_up(); }
  [[nodiscard]] const ControlChannel& control() const { return control_; }

 private:
  void receive();
  void kill_later(std::chrono::milliseconds delay, const std::string& why);
  void crashed(const std::string& reason);

  Context& context_;
  const std::vector<Listener>& listeners_;
  Events events_;
  Child child_;
  ControlChannel control_;
  RestartPolicy early_, late_;  // crashes before and after ready
  std::optional<TimePoint> start_at_, kill_at_;
  std::string kill_reason_;     // of kill_at_
  std::string killed_;          // the reason it was killed; empty: it was not
  std::string forbidden_call_;  // that it reported before its filter killed it
  bool ready_ = false, retired_ = false;
};

}  // namespace isogate::supervisor
