// How many execs run: a cap on all, on each backend host, on a tenant (its share) and on a sandbox, and a
// bounded queue beyond.
//
// Within a sandbox the queue is first come, first served. Tenants take turns, and within a tenant its
// sandboxes do, so that one at its cap, or with a long queue, does not delay the others. A tenant has the
// same share of the queue as of the execs, and one sandbox three quarters of that. One thread; it must
// outlive its tickets. Callbacks run inside the release of a ticket (or in set_limits()); they may call
// anything here and must not throw.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

namespace isogate::front {

class Admission {
  struct Sandbox;
  struct Backend;

 public:
  struct Limits {
    uint32_t max_execs = 4096;
    uint32_t max_execs_per_sandbox = 256;
    uint32_t exec_queue = 1024;
    uint32_t max_execs_per_tenant = UINT32_MAX;
    uint32_t exec_queue_per_tenant = UINT32_MAX;
  };

  class Ticket {  // one running exec; given back when it goes
   public:
    Ticket() : Ticket(nullptr, nullptr) {}
    void release() { place_.reset(); }
    // No caller waits for it, but its host still works on it: it keeps its place, and no longer counts as
    // running.
    void strand() {
      if (place_ && !std::exchange(place_.get_deleter().stranded, true))
        ++place_.get_deleter().owner->stranded_;
    }
    explicit operator bool() const { return place_ != nullptr; }

   private:
    friend class Admission;
    struct GiveBack {
      Admission* owner = nullptr;
      bool stranded = false;
      void operator()(Sandbox* sandbox) const {
        if (stranded) --owner->stranded_;
        owner->give_back(*sandbox);
      }
    };
    Ticket(Admission* owner, Sandbox* sandbox) : place_(sandbox, GiveBack{owner}) {}
    std::unique_ptr<Sandbox, GiveBack> place_;
  };
  struct Queued {
    uint64_t waiter = 0;  // for cancel()
  };
  struct Refused {  // 429
    std::string reason;
    uint32_t retry_after_sec = 1;
  };
  using Ready = std::function<void(Ticket)>;
  using Answer = std::variant<Ticket, Queued, Refused>;

  explicit Admission(Limits limits) : limits_(limits) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // A sandbox is one tenant's, and stays on its backend as long as it has execs. `ready` is kept, and called
  // once, only when the answer is Queued.
  Answer admit(std::string_view tenant, std::string_view sandbox_id, std::string_view backend, Ready ready);
  // A place for an exec that runs already, whatever the caps.
  Ticket readmit(std::string_view tenant, std::string_view sandbox_id, std::string_view backend);
  bool cancel(uint64_t waiter);    // false: its turn has come, or it never was
  void set_limits(Limits limits);  // a lower cap ends no exec, it only stops admission
  void set_backend_limit(std::string_view backend, uint32_t max_execs);  // likewise; unlimited before

  [[nodiscard]] uint32_t running() const { return running_ - stranded_; }
  [[nodiscard]] uint32_t waiting() const { return waiting_; }
  [[nodiscard]] uint32_t running(std::string_view sandbox_id) const;

 private:
  struct Waiter {
    uint64_t id = 0;
    Ready ready;
  };
  struct Tenant {
    std::string id;
    uint32_t running = 0, waiting = 0, sandboxes = 0;
    std::list<Sandbox*> turn;  // those that have waiters and are below their own and their backend's cap
    bool listed = false;       // in turn_: its own turn is not empty, and it is below its share
    std::list<Tenant*>::iterator place;
  };
  struct Backend {
    std::string name;
    uint32_t running = 0, max_execs = UINT32_MAX;
    std::unordered_set<Sandbox*> waiting;  // those of its sandboxes that have waiters
  };
  struct Sandbox {
    std::string id;
    Tenant* tenant = nullptr;
    Backend* backend = nullptr;
    uint32_t running = 0;
    std::deque<Waiter> queue;
    bool listed = false;  // in its tenant's turn
    std::list<Sandbox*>::iterator place;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <typename T>
  using ById = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  Backend& find_or_make(std::string_view backend);
  Sandbox& find_or_make(std::string_view tenant, std::string_view sandbox_id, std::string_view backend);
  [[nodiscard]] bool may_run(const Sandbox& sandbox) const;
  [[nodiscard]] bool queue_full(const Sandbox& sandbox) const;
  [[nodiscard]] Refused refuse(const Sandbox& sandbox) const;
  Ticket take(Sandbox& sandbox);
  void give_back(Sandbox& sandbox);
  void relist(Sandbox& sandbox);
  void relist_all(const Backend& backend);
  void forget_if_idle(Sandbox& sandbox);
  void pump();

  Limits limits_;
  uint32_t running_ = 0, waiting_ = 0, stranded_ = 0;
  uint64_t next_waiter_ = 1;
  bool pumping_ = false;
  ById<Tenant> tenants_;
  ById<Sandbox> sandboxes_;
  ById<Backend> backends_;  // as many as are configured: never forgotten
  std::unordered_map<uint64_t, Sandbox*> waiters_;
  std::list<Tenant*> turn_;
};

}  // namespace isogate::front
