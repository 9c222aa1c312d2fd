#include "gateway/host/server.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <set>

#include "gateway/base/budgets.h"
#include "gateway/base/log_left.h"
#include "gateway/host/orders.h"
#include "gateway/host/requests.h"
#include "gateway/ipc/codec.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate {
namespace {

using Clock = std::chrono::steady_clock;

// What is signalled when this backend host ends: a kept exec continues.
int end_of(const ipc::Call& call, int cancel_fd) {
  const auto* exec = std::get_if<ipc::ExecCall>(&call);
  return exec != nullptr && exec->keep != ipc::Keep::kNot && exec->detach ? exec->detach.get() : cancel_fd;
}

}  // namespace

InFlight::Call::Call(InFlight& owner, int cancel_fd, std::string_view function) : owner_(owner) {
  std::lock_guard lock(owner_.mutex_);
  admitted_ = !owner_.closed_;
  place_ = owner_.calls_.emplace(owner_.calls_.end(), cancel_fd, function);
}

InFlight::Call::~Call() {
  std::lock_guard lock(owner_.mutex_);
  owner_.calls_.erase(place_);
}

void InFlight::cancel_all() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [cancel_fd, function] : calls_)
    // One that has fired may be full, and a write to it would block; so may one that is no event, of a call
    // that is about to be refused.
    if (is_event(cancel_fd) && !is_signalled(cancel_fd)) signal_event(cancel_fd);
}

std::string InFlight::functions() {
  std::lock_guard lock(mutex_);
  std::set<std::string_view> all;
  for (const auto& [cancel_fd, function] : calls_) all.insert(function);
  return join(all, ", ");
}

Server::Server(Instance& instance, Fd front, int control, size_t most_calls)
    : backend_(instance.settings().name),
      front_(std::move(front)),
      control_(control),
      sandboxes_(instance),
      calls_(instance, sandboxes_),
      workers_(front_.get(), most_calls,
               {[this](ipc::Received received) { return serve(std::move(received)); },
                [this](const Error& why) { front_ended(why); }}) {}

int Server::run() {
  auto wake = make_event();
  if (!wake) {
    log::error("backend_host_start_failed", {{"reason", wake.error().message}});
    return 1;
  }
  wake_ = std::move(*wake);
  if (auto started = workers_.start(); !started) {
    log::error("backend_host_start_failed", {{"reason", started.error().message}});
    return 1;
  }
  wait_for_end();
  return stop();
}

bool Server::serve(ipc::Received received) {
  ipc::Reply reply;
  if (received.fds_lost) {
    received.fds.clear();
    reply = refusal(ipc::call_id(received.bytes),
                    {ISOGATE_RESOURCE_EXHAUSTED, EMFILE, "the backend host is out of descriptors"});
  } else {
    auto call = ipc::decode_call(received.bytes, std::move(received.fds));
    if (!call) return false;
    reply = answer(std::move(*call));
  }
  auto sent = ipc::send_record(front_.get(), ipc::encode(reply).bytes, {}, ipc::Wait::kBlock);
  if (!sent && sent.error().os_errno != EPIPE)
    log::warn("reply_not_sent", {{"call", reply.id}, {"reason", sent.error().message}});
  return true;
}

// The call's descriptors are closed when this returns: a reader of their other ends has seen their end before
// the reply arrives.
ipc::Reply Server::answer(ipc::Call call) {
  ipc::CallHeader& header = header_of(call);
  if (!header.cancel) {
    auto own = make_event();
    if (!own) return refusal(header.id, std::move(own.error()));
    header.cancel = std::move(*own);
  }
  InFlight::Call registered(in_flight_, end_of(call, header.cancel.get()), ipc::function_of(call));
  if (!registered.admitted())
    return refusal(header.id, {ISOGATE_UNAVAILABLE, 0, "this backend host is ending"});
  return calls_.run(call);
}

void Server::front_ended(const Error& why) {
  {
    std::lock_guard lock(reason_mutex_);
    if (reason_.empty()) reason_ = why.message;
  }
  if (why.os_errno != ECONNRESET) broken_ = true;
  signal_event(wake_.get());
}

void Server::wait_for_end() {
  for (;;) {
    pollfd watch[3] = {{wake_.get(), POLLIN, 0}, {control_, POLLIN, 0}, {front_.get(), POLLRDHUP, 0}};
    auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(Workers::kIdleTime);
    int ready = ::poll(watch, 3, static_cast<int>(tick.count()));
    if (ready < 0) continue;
    if (ready == 0) workers_.trim();
    if (watch[1].revents != 0 && read_control()) return;
    if (watch[0].revents != 0 || watch[2].revents != 0) return;
  }
}

// True when the supervisor wants this host to end, or is gone.
bool Server::read_control() {
  auto received = ipc::receive_record(control_, ipc::Wait::kDont);
  if (!received) return received.error().os_errno != EAGAIN;
  const auto order = parse_close(received->bytes);
  if (!order) {
    log::warn("unknown_supervisor_message", {{"bytes", received->bytes.size()}});
    return false;
  }
  close_mode_ = order->mode;
  return order->now;
}

int Server::stop() {
  if (broken_) log::error("front_channel_broken", {{"reason", reason_}});
  in_flight_.cancel_all();
  ::shutdown(front_.get(), SHUT_RD);  // wakes the idle workers; what is queued is still answered
  if (!workers_.wait(Clock::now() + budget::kCallsEnd)) {
    log::error("cancelled_calls_stuck", {{"backend", log::Own{backend_}},
                                         {"functions", in_flight_.functions()},
                                         {"threads", workers_.count()}});
    if (close_mode_ == ISOGATE_CLOSE_STOP) log_left(sandboxes_.ids(), "calls of this host did not end");
    log::flush();
    ::_exit(1);
  }
  const auto left = sandboxes_.close_all(close_mode_);
  left_open_ = !left.empty();
  const bool failed = close_mode_ == ISOGATE_CLOSE_STOP && left_open_;
  if (failed) log_left(left, "their close failed");
  return broken_ || failed ? 1 : 0;
}

}  // namespace isogate
