// Ends the work that a caller waits for: its client disconnected, the gateway drains. The front's one
// thread.
#pragma once

#include <functional>
#include <utility>

namespace isogate::front {

// Thrown by code that waits for a client that has disconnected, or that read nothing for the
// write timeout.
struct ClientGone {};

class Killer {
 public:
  void kill() {
    killed_ = true;
    if (act_) act_();
  }
  // What kill() does from now on; runs at once if kill() was called before.
  void on_kill(std::function<void()> act) {
    act_ = std::move(act);
    if (killed_ && act_) act_();
  }
  [[nodiscard]] bool killed() const { return killed_; }

 private:
  std::function<void()> act_;
  bool killed_ = false;
};

// on_kill() for as long as it lives. One at a time.
class OnKill {
 public:
  OnKill(Killer& killer, std::function<void()> act) : killer_(killer) { killer_.on_kill(std::move(act)); }
  ~OnKill() { killer_.on_kill({}); }
  OnKill(const OnKill&) = delete;
  OnKill& operator=(const OnKill&) = delete;

 private:
  Killer& killer_;
};

}  // namespace isogate::front
