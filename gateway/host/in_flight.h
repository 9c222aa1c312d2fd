// The calls that are running, so that all of them can be cancelled when the backend host ends. [any]
#pragma once

#include <mutex>

namespace isogate {

class InFlight {
 public:
  // Registered while it lives; `cancel_fd`, or whatever else ends the call, stays open that long.
  class Call {
   public:
    Call(InFlight& owner, int cancel_fd);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();
    // False once cancel_all() has run: the call must not begin.
    [[nodiscard]] bool admitted() const { return admitted_; }

   private:
    friend class InFlight;
    InFlight& owner_;
    int cancel_fd_;
    bool admitted_;
    Call* previous_ = nullptr;
    Call* next_ = nullptr;
  };

  // Permanent: fires every cancel_fd, and admits no more calls.
  void cancel_all();

 private:
  std::mutex mutex_;
  Call* first_ = nullptr;
  bool closed_ = false;
};

}  // namespace isogate
