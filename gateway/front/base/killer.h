// Lets a caller end what it waits for: its client went away, the gateway drains. The front's one thread.
#pragma once

#include <functional>
#include <utility>

namespace isogate::front {

// Thrown by what waits for a client that is gone, or that took nothing for the write timeout.
struct ClientGone {};

class Killer {
 public:
  void kill() {
    killed_ = true;
    if (act_) act_();
  }
  // What kill() does from now on; at once when it has been asked for before.
  void on_kill(std::function<void()> act) {
    act_ = std::move(act);
    if (killed_ && act_) act_();
  }
  [[nodiscard]] bool killed() const { return killed_; }

 private:
  std::function<void()> act_;
  bool killed_ = false;
};

}  // namespace isogate::front
