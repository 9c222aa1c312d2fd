// The front's end of the socket to one generation of one backend host.
//
// Calls are numbered and answered in any order. When the channel ends, every call in flight is answered
// with ISOGATE_LOST (it may have started) and later ones with ISOGATE_UNAVAILABLE. So is a call whose
// backend does not let go of it after its cancellation; a host that does so again and again, or with a probe,
// is given up: its channel ends, and the supervisor starts another. The front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "gateway/front/cancel.h"
#include "gateway/front/event.h"
#include "gateway/ipc/codec.h"
#include "gateway/ipc/messages.h"
#include "runner/fd.h"

namespace isogate::front {

struct HostIdentity {
  uint64_t generation = 0;
  uint64_t settings = 0;  // two hosts of a backend that have this in common have the same settings
};

class BackendChannel : public std::enable_shared_from_this<BackendChannel> {
 public:
  using HelloCallback = std::function<void(const ipc::Hello&)>;
  using EndCallback = std::function<void()>;

  BackendChannel(boost::asio::any_io_executor executor, Fd socket, HostIdentity identity);

  void start(HelloCallback on_hello, EndCallback on_end);

  // Sends the call, whose descriptors are closed here once sent, and waits for its reply. Without a `cancel`
  // of the caller's the call is cancelled when it takes longer than its kind may. What is too large to be
  // sent is ISOGATE_INVALID_ARGUMENT: nothing is wrong with the backend then.
  boost::asio::awaitable<ipc::Reply> call(ipc::Call call, std::shared_ptr<Cancel> cancel = nullptr);

  // Another host takes its place: the socket is closed, which ends this one, when the last reply is in and
  // nobody holds it. Who does, by the pointer that hold() gives, may call on.
  void retire();
  std::shared_ptr<BackendChannel> hold();

  [[nodiscard]] bool open() const { return open_ && !retired_; }
  [[nodiscard]] bool connected() const { return open_; }
  [[nodiscard]] bool given_up() const { return given_up_; }
  [[nodiscard]] const HostIdentity& identity() const { return identity_; }
  [[nodiscard]] size_t in_flight() const { return pending_.size(); }
  [[nodiscard]] const boost::asio::any_io_executor& executor() const { return executor_; }

 private:
  struct Pending {
    explicit Pending(const boost::asio::any_io_executor& executor) : done(executor) {}
    std::optional<ipc::Reply> reply;
    bool sent = false;
    Event done;
  };

  boost::asio::awaitable<void> receive_loop(HelloCallback on_hello);
  bool receive_one(const HelloCallback& on_hello);
  boost::asio::awaitable<bool> send(const ipc::Encoded& record);
  void abandon(uint64_t id, bool probe);
  void end();
  void close_if_idle();

  boost::asio::any_io_executor executor_;
  boost::asio::posix::stream_descriptor socket_;
  HostIdentity identity_;
  uint64_t next_id_ = 1;
  size_t holds_ = 0;
  bool open_ = true;
  bool retired_ = false;
  bool given_up_ = false;
  std::unordered_set<uint64_t> abandoned_;  // that the host still works on
  std::unordered_map<uint64_t, std::shared_ptr<Pending>> pending_;
  EndCallback on_end_;
};

}  // namespace isogate::front
