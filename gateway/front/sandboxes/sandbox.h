// One sandbox as the front knows it, and how its users hold it: a Change while it is opened or closed, a
// Lease while calls of it run. The front's one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "gateway/front/backends/backends.h"
#include "gateway/front/base/changes.h"
#include "gateway/front/state/state.h"

namespace isogate::front {

// Why a watch ends.
enum class WatchEnd {
  kRemoved,       // its directory is gone
  kSandboxEnded,  // or is stopped
  kReloaded,      // another host replaces the one that watches
  kDraining,
  kFailed,
};

// Ends a connection to a port at once; with `lasting_only` not one that carries a single request.
using PortCut = std::function<void(const std::string& why, bool lasting_only)>;

struct Sandbox {
  explicit Sandbox(const boost::asio::any_io_executor& executor) : changes(executor), calling(executor) {}

  SandboxRow row;
  bool known = false;      // in the state store; `row.state`: whether it was ever accepted
  bool runs = false;       // it outlives its host, and one host at a time has it open
  bool left_over = false;  // half-made or half-closed, which the next host is to end
  bool emptied = false;  // its backend made an empty workspace in place of its own: lost until it is deleted
  // A close that began and has not succeeded, ISOGATE_CLOSE_*: no call but another close may follow.
  std::optional<uint32_t> closing;
  // The host it is open in, replaced or not; null: none. Where it `runs`, held until the next host has it.
  std::shared_ptr<BackendChannel> open_in;
  std::weak_ptr<BackendChannel> asked;              // the host that was asked last to open it
  bool hangs = false;                               // idle, and it was logged that a call of it hangs
  bool changing = false;                            // being opened or closed
  Changes changes;                                  // of `changing`
  size_t calls = 0;                                 // leases out
  Changes calling;                                  // of `calls`, `kills` and `ports`
  std::chrono::steady_clock::time_point used;       // when the last lease came back
  std::chrono::steady_clock::time_point end_again;  // not before, once expired
  size_t execs = 0;
  Limits in_force;                                   // as measured at its last open; 0: not known, or none
  std::optional<isogate_disk_use> disk;              // as its backend said last; none: it does not say
  std::unordered_set<std::function<void()>*> kills;  // OnSandboxEnd's
  // Running watches. They are no calls: they keep it neither from becoming idle nor from being
  // closed.
  std::unordered_set<std::function<void(WatchEnd)>*> watches;
  // Why the gateway does not connect to its ports; empty: its network was measured, and is its
  // own.
  std::string ports_refused = "its network was not measured";
  std::unordered_set<PortCut*> ports;  // of its open connections to ports

  // `open_in`, or the host that may still have it open though it is lost there, or its open was.
  [[nodiscard]] std::shared_ptr<BackendChannel> may_be_in() const {
    if (open_in) return open_in;
    auto host = asked.lock();
    return host && host->connected() && host->may_have(row.sandbox_id) ? host : nullptr;
  }
  // The replaced host in which calls of it still run; else null.
  [[nodiscard]] std::shared_ptr<BackendChannel> busy_before(const BackendChannel& now) const {
    auto host = may_be_in();
    return calls > 0 && host && host->connected() && host.get() != &now ? host : nullptr;
  }
  void closed() {
    closing.reset();
    gone();
  }
  // Nothing of it runs.
  void gone() {
    runs = false;
    open_in.reset();
  }
  [[nodiscard]] bool has_host() const { return open_in && open_in->connected(); }
  // Before its host is asked to close it, which waits for what runs.
  void end_watches(WatchEnd why) {
    for (auto* end : std::exchange(watches, {})) (*end)(why);
  }
  void cut_ports(const std::string& why, bool lasting_only) const {
    const auto cuts = ports;
    for (auto* cut : cuts) (*cut)(why, lasting_only);
  }
  // Kills every running call, and cuts every connection to a port.
  void end_calls(const std::string& why) const {
    const auto all = kills;
    for (auto* kill : all) (*kill)();
    cut_ports(why, false);
  }
};

using SandboxPtr = std::shared_ptr<Sandbox>;

// One change of a sandbox at a time: it is `changing` while this lives. Then the next one that waits
// continues, however the change ended.
class [[nodiscard]] Change {
 public:
  explicit Change(SandboxPtr sandbox) : sandbox_(std::move(sandbox)) { sandbox_->changing = true; }
  // When no other is under way.
  static boost::asio::awaitable<Change> wait_for(SandboxPtr sandbox) {
    co_await sandbox->changes.until([&] { return !sandbox->changing; });
    co_return Change(std::move(sandbox));
  }
  Change(Change&&) noexcept = default;
  Change& operator=(Change&&) = delete;
  ~Change() {
    if (!sandbox_) return;
    sandbox_->changing = false;
    sandbox_->changes.notify();
  }

 private:
  SandboxPtr sandbox_;
};

class Lease {
 public:
  Lease(SandboxPtr of, std::shared_ptr<Backend> on, const std::shared_ptr<BackendChannel>& by)
      : sandbox(std::move(of)), backend(std::move(on)), channel(by->hold()) {
    ++sandbox->calls;
  }
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = delete;
  ~Lease() {
    if (!sandbox) return;
    --sandbox->calls;
    sandbox->used = std::chrono::steady_clock::now();
    sandbox->calling.notify();
  }

  // On whose behalf a call takes this place at its backend, or these two.
  [[nodiscard]] OnBehalf with_place(std::shared_ptr<void> place, std::shared_ptr<void> also = nullptr) const {
    struct Places {
      std::shared_ptr<Backend> backend;  // has the gates
      std::shared_ptr<void> one, other;
    };
    return {sandbox->row.tenant,
            std::make_shared<Places>(Places{backend, std::move(place), std::move(also)})};
  }
  // What a call came back with, if it is the sandbox's end.
  void note(isogate_status status) const {
    if (status == ISOGATE_NO_SANDBOX || status == ISOGATE_SANDBOX_LOST) lost(status);
  }
  // A call came back with ISOGATE_NO_SANDBOX or ISOGATE_SANDBOX_LOST: the next acquire() opens it again.
  void lost(isogate_status status) const {
    if (status == ISOGATE_SANDBOX_LOST) sandbox->row.state = SandboxRow::State::kLost;
    if (sandbox->open_in != channel) return;  // it has been opened since, elsewhere
    sandbox->end_watches(WatchEnd::kSandboxEnded);
    if (status == ISOGATE_LOST && !channel->connected()) return;  // its host ended; what runs has not
    sandbox->gone();
  }
  // An exec in it ran in the wrong place: it is closed before anything else runs in it.
  void distrust() const {
    sandbox->closing = std::max<uint32_t>(sandbox->closing.value_or(ISOGATE_CLOSE_STOP), ISOGATE_CLOSE_STOP);
  }

  SandboxPtr sandbox;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<BackendChannel> channel;
};

// A running call, which `kill` ends when the sandbox is ended, for as long as this lives. `kill` may run
// repeatedly. The sandbox outlives it.
class OnSandboxEnd {
 public:
  OnSandboxEnd(Sandbox& sandbox, std::function<void()> kill) : sandbox_(sandbox), kill_(std::move(kill)) {
    sandbox_.kills.insert(&kill_);
    sandbox_.calling.notify();
  }
  ~OnSandboxEnd() { leave(); }
  OnSandboxEnd(const OnSandboxEnd&) = delete;
  OnSandboxEnd& operator=(const OnSandboxEnd&) = delete;
  // The call has ended, except for its answer to the client.
  void leave() {
    sandbox_.kills.erase(&kill_);
    sandbox_.calling.notify();
  }

 private:
  Sandbox& sandbox_;
  std::function<void()> kill_;
};

// What a call asks of its agent's sandbox.
struct Wanted {
  std::string tenant, agent;
  std::optional<std::string> backend;
  std::optional<uint32_t> min_isolation;
  uint64_t capabilities = 0;
  std::string request_id;
  std::optional<std::string> image = {};  // that it must have; empty: its backend's own
  int64_t expires_ms = 0;                 // of a new one: SandboxRow's
  std::string e2b_record = {};            // the same
  bool existing = false;                  // sandbox_not_found where there is none yet
  bool running = false;                   // not opened if nothing of it runs: a permanent error
};

}  // namespace isogate::front
