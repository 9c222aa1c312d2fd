#include "gateway/front/sandboxes/port_connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

#include "gateway/front/base/alarm.h"
#include "gateway/front/base/changes.h"
#include "gateway/front/base/own_fd.h"
#include "gateway/front/base/readable.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr const char* kReplaced = "the sandbox's backend is replaced";
constexpr std::chrono::seconds kDialWithin{10};  // the backend itself gives up earlier

// By the end of its sandbox, a reload or the end of the gateway: the next attempt is told which.
ApiError cut_while_dialled(const std::string& why) {
  return {
      .code = Code::kBackendUnavailable, .message = "the port was not dialled: " + why, .retry_after_sec = 1};
}

ApiError refusal_of(const ipc::Reply& reply, uint16_t port) {
  if (reply.status == ISOGATE_NOT_FOUND) return {.code = Code::kPortClosed, .message = reply.message};
  if (reply.status == ISOGATE_OK)
    return {.code = Code::kInternal,
            .message =
                "the backend ended the connection to port " + std::to_string(port) + " before it was there"};
  return from_backend(reply.error());
}

}  // namespace

// Lives until the backend has answered. Its sandbox, and whoever replaces its backend, can cut it.
struct PortConnection::Shared {
  Shared(Lease held, Fd own, OnBehalf for_whom, const PortTarget& target)
      : executor(held.channel->executor()),
        backend(held.backend->config.name),
        lease(std::move(held)),
        whose(std::move(for_whom)),
        stream(executor, own.release()),
        ready(executor),
        changes(executor),
        cancel(or_throw(Cancel::make(executor))),
        lasting(target.lasting),
        patience(target.patience),
        out_of_patience(executor) {
    lease->sandbox->ports.insert(&cut_by_sandbox);
    lease->sandbox->calling.notify();
    lease->channel->on_retire.insert(&cut_by_reload);
    if (!lasting && is_replaced()) cut_by_reload();
  }
  ~Shared() { release(); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  static asio::awaitable<void> run(std::shared_ptr<Shared> self, Backends& backends, ipc::ConnectCall call) {
    const auto channel = self->lease->channel;
    self->reply = co_await channel->call(std::move(call), self->cancel, std::move(self->whose));
    const isogate_status status = self->reply.status;
    if (self->ready.is_open()) {  // it may have been ready and ended at once
      pollfd look{self->ready.native_handle(), POLLIN, 0};
      if (::poll(&look, 1, 0) > 0 && (look.revents & POLLIN) != 0) self->connected = true;
    }
    if (!self->connected && status != ISOGATE_NOT_FOUND && status != ISOGATE_CANCELLED)
      backends.judge(*self->lease->backend, self->lease->sandbox->row, self->reply);
    if (status == ISOGATE_NO_SANDBOX || status == ISOGATE_SANDBOX_LOST || status == ISOGATE_LOST)
      self->lease->lost(status);
    self->release();
    self->done = true;
    boost::system::error_code ignored;
    self->ready.close(ignored);
    self->changes.notify();
  }

  static asio::awaitable<void> await_ready(std::shared_ptr<Shared> self) {
    co_await until_readable(self->ready);
    if (self->ready.is_open() && !self->done) self->connected = true;
    self->changes.notify();
  }

  [[nodiscard]] bool is_replaced() const { return lease && !lease->channel->open(); }

  // Its sandbox is not held any more.
  void release() {
    if (!lease) return;
    out_of_patience.cancel();
    lease->sandbox->ports.erase(&cut_by_sandbox);
    lease->channel->on_retire.erase(&cut_by_reload);
    lease.reset();
  }

  void end_by(std::string why) {
    if (cut_why || done) return;
    cut_why = std::move(why);
    cancel->fire();
    boost::system::error_code ignored;
    stream.close(ignored);
    ready.close(ignored);
    changes.notify();
    if (const auto act = std::exchange(on_cut, {})) act();
  }

  void check_cut() const {
    if (cut_why) throw PortBroken{*cut_why, true};
  }

  // Both directions of it, not one alone: then the backend has ended the call, or its host is gone.
  bool is_hung_up() {
    pollfd look{stream.native_handle(), 0, 0};
    return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0;
  }

  asio::any_io_executor executor;
  std::string backend;
  std::optional<Lease> lease;
  OnBehalf whose;
  asio::posix::stream_descriptor stream, ready;
  Changes changes;
  std::shared_ptr<Cancel> cancel;
  bool connected = false, done = false;
  std::optional<std::string> cut_why;
  std::function<void()> on_cut;
  bool lasting;
  const std::chrono::milliseconds patience;
  Alarm out_of_patience;
  PortCut cut_by_sandbox = [this](const std::string& why, bool lasting_only) {
    if (lasting || !lasting_only) end_by(why);
  };
  // The next host opens the sandbox when nothing holds it any more.
  std::function<void()> cut_by_reload = [this] {
    if (lasting) return end_by(kReplaced);
    out_of_patience.set(patience, [this] { end_by(kReplaced); });
  };
  ipc::Reply reply;
};

asio::awaitable<std::unique_ptr<PortConnection>> PortConnection::open(Sandboxes& sandboxes,
                                                                      Backends& backends, PortTarget target,
                                                                      size_t most_of_sandbox,
                                                                      Killer& killer) {
  const Wanted wanted{.tenant = target.tenant,
                      .agent = target.agent,
                      .capabilities = ISOGATE_CAP_PORTS,
                      .request_id = target.request_id,
                      .existing = true};
  Lease lease = co_await sandboxes.acquire(wanted);
  if (killer.killed()) throw ClientGone{};
  const Sandbox& sandbox = *lease.sandbox;
  if (!sandbox.ports_refused.empty())
    throw ApiError{.code = Code::kUnsupported,
                   .message = "no port of this sandbox is dialled: " + sandbox.ports_refused};
  if (sandbox.ports.size() >= most_of_sandbox)
    throw ApiError{
        .code = Code::kRateLimited,
        .message = std::to_string(most_of_sandbox) +
                   " connections to ports of this sandbox are open (ports.max_per_sandbox); close some",
        .retry_after_sec = 1};
  OnBehalf whose = lease.with_place(lease.backend->ports.enter(target.tenant));
  ipc::ConnectCall call;
  call.call.request_id = target.request_id;
  call.sandbox_id = sandbox.row.sandbox_id;
  call.port = target.port;
  SocketPair ends = or_throw(make_socket_pair(SOCK_STREAM | SOCK_NONBLOCK, "cannot make a pair of sockets"));
  Fd ready = or_throw(make_event());
  call.stream = std::move(ends.theirs);
  call.ready = duplicate(ready);
  const auto shared =
      std::make_shared<Shared>(std::move(lease), std::move(ends.own), std::move(whose), target);
  shared->ready.assign(ready.release());
  std::unique_ptr<PortConnection> made(new PortConnection(shared));
  const auto executor = shared->executor;
  asio::co_spawn(executor, Shared::run(shared, backends, std::move(call)), asio::detached);
  asio::co_spawn(executor, Shared::await_ready(shared), asio::detached);
  const OnKill on_kill(killer, [shared] { shared->end_by("its client has disconnected"); });
  const bool in_time = co_await shared->changes.until(
      [&shared] { return shared->connected || shared->done || shared->cut_why; }, kDialWithin);
  if (killer.killed()) throw ClientGone{};
  if (shared->cut_why) throw cut_while_dialled(*shared->cut_why);
  if (shared->connected) co_return std::move(made);
  if (in_time) throw refusal_of(shared->reply, target.port);
  throw ApiError{.code = Code::kBackendUnavailable,
                 .message = "the backend did not dial port " + std::to_string(target.port) + " within " +
                            std::to_string(kDialWithin.count()) + " s",
                 .retry_after_sec = 1};
}

PortConnection::~PortConnection() {
  shared_->on_cut = {};
  shared_->end_by("its client has closed it");
}

asio::awaitable<size_t> PortConnection::read_some(char* to, size_t size) {
  const auto shared = shared_;
  shared->check_cut();
  boost::system::error_code error;
  const size_t n = co_await shared->stream.async_read_some(asio::buffer(to, size),
                                                           asio::redirect_error(asio::use_awaitable, error));
  shared->check_cut();
  if (!error && n > 0) {
    received_ += n;
    co_return n;
  }
  if (shared->is_hung_up()) co_await ended();
  co_return 0;
}

asio::awaitable<bool> PortConnection::write(std::string_view bytes) {
  const auto shared = shared_;
  shared->check_cut();
  boost::system::error_code error;
  const size_t n = co_await asio::async_write(shared->stream, asio::buffer(bytes.data(), bytes.size()),
                                              asio::redirect_error(asio::use_awaitable, error));
  shared->check_cut();
  sent_ += n;
  co_return !error;
}

void PortConnection::end_writing() {
  if (shared_->stream.is_open()) ::shutdown(shared_->stream.native_handle(), SHUT_WR);
}

void PortConnection::make_lasting() {
  shared_->lasting = true;
  if (shared_->is_replaced()) shared_->cut_by_reload();
}

void PortConnection::cut(std::string why) { shared_->end_by(std::move(why)); }

void PortConnection::on_cut(std::function<void()> act) { shared_->on_cut = std::move(act); }

asio::awaitable<void> PortConnection::ended() {
  const auto shared = shared_;
  co_await shared->changes.until([&shared] { return shared->done || shared->cut_why; });
  shared->check_cut();
  if (shared->reply.status != ISOGATE_OK) throw PortBroken{shared->reply.message, false};
}

const std::string& PortConnection::backend() const { return shared_->backend; }

}  // namespace isogate::front
