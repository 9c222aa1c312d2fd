// Ends the work that a caller waits for: its client disconnected, the gateway drains. The front's one
// thread.
#pragma once

#include <boost/intrusive/list.hpp>
#include <functional>
#include <utility>

namespace isogate::front {

// Thrown by code that waits for a client that has disconnected, or that read nothing for the
// write timeout.
struct ClientGone {};

class Killer;

// What kill() does, for as long as this lives; runs at once if kill() was called before. It must destroy no
// other one.
class OnKill
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  OnKill(Killer& killer, std::function<void()> act);
  OnKill(const OnKill&) = delete;
  OnKill& operator=(const OnKill&) = delete;

 private:
  friend class Killer;
  std::function<void()> act_;
};

class Killer {
 public:
  Killer() = default;
  Killer(const Killer&) = delete;
  Killer& operator=(const Killer&) = delete;

  void kill() {
    killed_ = true;
    for (auto next = acts_.begin(); next != acts_.end();) (next++)->act_();
  }
  [[nodiscard]] bool killed() const { return killed_; }
  // For other work, with nothing to do yet.
  void reset() {
    killed_ = false;
    acts_.clear();
  }

 private:
  friend class OnKill;
  boost::intrusive::list<OnKill, boost::intrusive::constant_time_size<false>> acts_;
  bool killed_ = false;
};

inline OnKill::OnKill(Killer& killer, std::function<void()> act) : act_(std::move(act)) {
  killer.acts_.push_back(*this);
  if (killer.killed_) act_();
}

}  // namespace isogate::front
