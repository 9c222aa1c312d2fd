// The front's end of the socket to one generation of one backend host.
//
// Calls are numbered and answered in any order. When the channel ends, every call in flight is answered
// with ISOGATE_LOST (it may have started) and later ones with ISOGATE_UNAVAILABLE. So is a call whose
// backend does not end it after its cancellation. The front's one thread.
//
// The host may be hostile. Its first record is its only Hello, each further one answers a call in that call's
// form, and none brings a descriptor. Anything else is a breach: the front abandons the host, its channel
// ends, and the supervisor starts another. The same happens to a stuck host: one that does not end cancelled
// calls of several tenants, or of a probe while it answers nothing else. A slow host is not stuck: calls that
// wait for an open do not count, as long as the host itself answers a ping.
//
// Nor does one tenant end the host for others: its hanging calls count for half at most. The exception is a
// sandbox that can be neither opened nor closed because any call of it hangs: else its agent could do nothing
// until a restart. A durable write does not count: a disk may be slow. What a tenant runs cannot bring that
// about by itself: the plugin has 15 s to end a cancelled call, and the close that waits for it another
// minute, so a host is lost for a plugin's defect, about once a minute at most.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "gateway/front/base/cancel.h"
#include "gateway/front/base/event.h"
#include "gateway/ipc/codec.h"
#include "gateway/ipc/messages.h"
#include "lib/fd.h"

namespace isogate::front {

struct HostIdentity {
  uint64_t generation = 0;
  uint64_t settings = 0;     // two hosts of a backend with the same value have the same settings
  std::string backend = {};  // its name, for the log
};

// The tenant of a call, and the places that it takes: they are returned when the host is done with the
// call, which may be long after it was answered as lost.
struct OnBehalf {
  OnBehalf() {}  // no aggregate: GCC 12 copies those bit by bit in a co_await
  OnBehalf(std::string whose, std::shared_ptr<void> its_place)
      : tenant(std::move(whose)), place(std::move(its_place)) {}

  std::string tenant;
  std::shared_ptr<void> place;
};

class BackendChannel : public std::enable_shared_from_this<BackendChannel> {
 public:
  using HelloCallback = std::function<void(const ipc::Hello&)>;
  using EndCallback = std::function<void()>;

  BackendChannel(boost::asio::any_io_executor executor, Fd socket, HostIdentity identity);

  void start(HelloCallback on_hello, EndCallback on_end);

  // Its process has ended, whoever still has its socket: takes the answers that it left, and ends.
  void host_ended();

  // How many sandboxes it may have open, and how many of them one tenant. Further opens are
  // ISOGATE_RESOURCE_EXHAUSTED, except for sandboxes that run already or are opened to be closed.
  void limit_sandboxes(size_t all, size_t per_tenant) {
    most_sandboxes_ = all;
    most_of_tenant_ = per_tenant;
  }
  // It counts among them: an open was sent, and neither its failure nor a close has been reported.
  [[nodiscard]] bool may_have(const std::string& sandbox_id) const {
    return open_sandboxes_.tenant_of.contains(sandbox_id);
  }
  // A call of it was cancelled and has not ended; `at_fault`: other than a durable write.
  [[nodiscard]] bool hangs(const std::string& sandbox_id, bool at_fault = false) const;

  // Sends the call, whose descriptors are closed here once sent, and waits for its reply. Without the
  // caller's `cancel`, the call is cancelled at the time limit of its kind. A call that is too large to send
  // is ISOGATE_INVALID_ARGUMENT: the backend is not at fault then. `unsent` gets a call back that was not
  // sent, with its descriptors.
  boost::asio::awaitable<ipc::Reply> call(ipc::Call call, std::shared_ptr<Cancel> cancel = nullptr,
                                          OnBehalf whose = {}, ipc::Call* unsent = nullptr);

  // Another host replaces it: the socket is closed, which ends this host, when the last reply has arrived
  // and no caller holds it. A caller that holds it, by the pointer from hold(), may make further calls.
  void retire();
  // Called when it retires, and again when nobody holds it any more: calls without an end of their own are
  // ended, so that they do not delay a reload.
  std::unordered_set<std::function<void()>*> on_retire;
  std::shared_ptr<BackendChannel> hold();

  [[nodiscard]] bool open() const { return open_ && !retired_; }
  [[nodiscard]] bool connected() const { return open_; }
  // Why it was abandoned; empty: it was not.
  [[nodiscard]] const std::string& given_up() const { return given_up_; }
  // It has answered a probe, in whatever way.
  [[nodiscard]] bool probed() const { return probed_; }
  [[nodiscard]] const HostIdentity& identity() const { return identity_; }
  [[nodiscard]] const boost::asio::any_io_executor& executor() const { return executor_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Pending {
    explicit Pending(const boost::asio::any_io_executor& executor) : done(executor) {}
    size_t kind = 0;  // of ipc::Call
    std::string_view function;
    std::string sandbox_id;
    std::optional<ipc::FileVerb> verb;
    bool is_sign = false;      // several such calls that are abandoned show that the host is stuck
    bool may_be_slow = false;  // a disk may be: that it is abandoned shows nothing
    OnBehalf whose;
    bool sent = false;
    std::optional<ipc::Reply> reply;
    Event done;
  };
  struct Outgoing {
    uint64_t id;
    ipc::Call* call;  // of the coroutine that waits; owns the record's descriptors until it is sent
    ipc::Encoded record;
  };
  struct OpenSandboxes {
    std::unordered_map<std::string, std::string> tenant_of;  // by sandbox_id
    std::unordered_map<std::string, size_t> count_of;        // by tenant
  };

  // Keeps this alive from the spawn on: the first step of what is spawned comes later.
  using Self = std::shared_ptr<BackendChannel>;

  boost::asio::awaitable<void> receive_loop(Self);
  bool receive_one();
  std::optional<std::string> take(ipc::FromHost message);
  void answer(uint64_t id, ipc::Reply reply);
  bool post(Outgoing outgoing);
  Result<void> try_send(Outgoing& outgoing);
  boost::asio::awaitable<void> send_queued(Self);
  void abandon(uint64_t id);
  void judge_abandoned();
  void judge_hanging_probe();
  void judge_waiting(const std::string& sandbox_id, ipc::Reply& reply);
  boost::asio::awaitable<void> ping(Self);
  void give_up(std::string why);
  void end();
  void end_lasting();
  void close_if_idle();
  [[nodiscard]] std::optional<std::string> no_room_for(const ipc::OpenCall& call) const;
  void note_open(const std::string& sandbox_id, const std::string& tenant);
  void note_closed(const std::string& sandbox_id);

  boost::asio::any_io_executor executor_;
  boost::asio::posix::stream_descriptor socket_;
  HostIdentity identity_;
  uint64_t next_id_ = 1;
  size_t holds_ = 0;
  bool open_ = true;
  bool retired_ = false;
  bool hello_came_ = false;
  bool probed_ = false;
  bool sending_ = false;  // send_queued() runs
  std::string given_up_;
  Clock::time_point last_record_ = Clock::now();  // when the last record came
  std::deque<Outgoing> outbox_;                   // what the socket had no room for
  std::unordered_map<uint64_t, std::shared_ptr<Pending>> pending_;
  std::unordered_map<uint64_t, std::shared_ptr<Pending>> abandoned_;  // that the host still works on
  size_t most_sandboxes_ = SIZE_MAX, most_of_tenant_ = SIZE_MAX;
  OpenSandboxes open_sandboxes_;
  HelloCallback on_hello_;
  EndCallback on_end_;
};

}  // namespace isogate::front
