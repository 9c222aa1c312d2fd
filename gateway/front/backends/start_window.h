// How many execs of one backend start at a time, if several tenants share it: a few per core. The rest waits
// here, and tenants take turns. So a tenant with thousands of execs delays another one only by the few that
// start just now.
//
// A backend reports the end of an exec, not the start of its program. A slot is therefore returned when the
// exec ends, or once it was held three times as long as recent execs took without their program: a
// long-running program delays no other exec. The front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "gateway/front/base/alarm.h"

namespace isogate::front {

class StartWindow : public std::enable_shared_from_this<StartWindow> {
 public:
  using Clock = std::chrono::steady_clock;

  class Slot {  // given back when it goes
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept : window_(std::move(other.window_)), id_(other.id_) {}
    Slot& operator=(Slot&& other) noexcept {
      std::swap(window_, other.window_);
      std::swap(id_, other.id_);
      return *this;
    }
    ~Slot() { release(); }
    void release() {
      if (const auto window = std::exchange(window_, nullptr)) window->leave(id_);
    }
    // The exec has ended: how long it took beyond its program's own time.
    void ended(std::chrono::nanoseconds beyond) {
      if (window_) window_->learn(beyond);
      release();
    }

   private:
    friend class StartWindow;
    Slot(std::shared_ptr<StartWindow> window, uint64_t id) : window_(std::move(window)), id_(id) {}
    std::shared_ptr<StartWindow> window_;  // null: there is no bound
    uint64_t id_ = 0;
  };
  using Ready = std::function<void(Slot)>;
  struct Queued {
    uint64_t waiter = 0;  // for cancel()
  };

  static constexpr uint32_t kUnbounded = UINT32_MAX;

  explicit StartWindow(const boost::asio::any_io_executor& executor) : alarm_(executor) {}

  void resize(uint32_t most);

  // `ready` is kept, and called once, only when the answer is Queued.
  std::variant<Slot, Queued> enter(const std::string& tenant, Ready ready);
  bool cancel(uint64_t waiter);  // false: its turn has come, or it never was

  [[nodiscard]] size_t waiting() const { return tenant_of_.size(); }

 private:
  struct Waiter {
    uint64_t id = 0;
    Ready ready;
  };
  struct Tenant {
    std::string id;
    std::deque<Waiter> queue;
  };

  Slot take();
  void leave(uint64_t id);
  void learn(std::chrono::nanoseconds beyond);
  void expire();
  void pump();
  [[nodiscard]] Clock::duration patience() const;

  uint32_t most_ = kUnbounded;
  uint64_t next_ = 1;
  bool pumping_ = false;
  std::chrono::nanoseconds beyond_{0};              // lately
  std::map<uint64_t, Clock::time_point> starting_;  // since when; ids grow with time
  std::list<Tenant> turn_;                          // those who wait
  std::unordered_map<std::string, std::list<Tenant>::iterator> by_tenant_;
  std::unordered_map<uint64_t, std::list<Tenant>::iterator> tenant_of_;  // by waiter
  Clock::time_point rings_ = Clock::time_point::max();
  Alarm alarm_;
};

}  // namespace isogate::front
