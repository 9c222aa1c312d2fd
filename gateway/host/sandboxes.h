// The open sandboxes of a backend host, by sandbox_id. Keeps the plugin's rules: never two opens at once
// for one id, and no call of a sandbox while it is closed. [any]
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gateway/host/instance.h"
#include "gateway/ipc/messages.h"
#include "lib/condition.h"

namespace isogate {

class Sandboxes {
  enum class State {
    kOpening,
    kOpen,
    kClosing,
    kBroken
  };  // kBroken: a close failed, only a close may follow
  struct Box {
    State state = State::kOpening;
    isogate_sandbox* sandbox = nullptr;
    ipc::Opened opened;
    uint32_t calls = 0;
    // The close that the next open begins with: the plugin reported its end, or claimed too much for it.
    std::optional<uint32_t> own_close;
  };

 public:
  explicit Sandboxes(Instance& instance) : instance_(instance) {}

  // If the sandbox is open already: the result of the first open, ATTACHED and no longer FRESH. A sandbox
  // whose close failed can only be attached to and closed, not opened: ISOGATE_UNAVAILABLE. A close that this
  // host made by itself is repeated first. ISOGATE_LOST: the plugin claimed too much for it, and did not
  // close it then.
  Result<ipc::Opened> open(const ipc::OpenCall& call, const Limits& limits, uint32_t egress);

  // Waits for the calls of that sandbox to end. New calls are refused from the begin of the close, and
  // permanently if it fails. One that the plugin does not have any more is closed; PURGE then is
  // ISOGATE_NO_SANDBOX, as it may have left something. One that claimed too much is stopped at least.
  Result<void> close(const ipc::CloseCall& call);

  // A counted hold of an open sandbox, for one call.
  class Lease {
   public:
    Lease(Lease&& other) noexcept : owner_(other.owner_), box_(std::exchange(other.box_, nullptr)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (box_ != nullptr) owner_.give_back(*box_);
    }
    [[nodiscard]] isogate_sandbox* sandbox() const { return box_->sandbox; }
    void mark_ended() { owner_.mark_ended(*box_); }

   private:
    friend class Sandboxes;
    Lease(Sandboxes& owner, Box& box) : owner_(owner), box_(&box) {}
    Sandboxes& owner_;
    Box* box_;
  };
  Result<Lease> lease(const std::string& sandbox_id);  // ISOGATE_NO_SANDBOX when it is not open

  // At the end, when no call is left: closes all sandboxes, several at a time, and logs each failure. After
  // budget::kCloseAll the calls of the plugin are cancelled; if one does not return within kCloseLate, the
  // process ends with exit code 1. Returns the ids of the sandboxes that are not closed.
  std::vector<std::string> close_all(uint32_t mode);
  [[nodiscard]] std::vector<std::string> ids();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // `sandbox` after a failure: null, or one that is still to be closed.
  Result<ipc::Opened> call_open(const ipc::OpenCall& call, const Limits& limits, uint32_t egress,
                                isogate_sandbox*& sandbox);
  Result<void> close_box(Lock& lock, const std::string& id, Box& box, const isogate_call& call,
                         uint32_t mode);
  Result<void> wait(Lock& lock, int cancel_fd);
  void give_back(Box& box);
  void mark_ended(Box& box);

  Instance& instance_;
  std::mutex mutex_;
  Condition changed_;
  std::unordered_map<std::string, Box> boxes_;
};

}  // namespace isogate
