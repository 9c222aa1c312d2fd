#include "gateway/front/backend_channel.h"

#include <fcntl.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cerrno>

#include "gateway/base/log.h"
#include "gateway/ipc/channel.h"
#include "gateway/ipc/codec.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

ipc::CallHeader& header_of(ipc::Call& call) {
  return std::visit([](auto& each) -> ipc::CallHeader& { return each.call; }, call);
}

constexpr size_t kMostAbandoned = 16;

std::chrono::seconds longest(const ipc::Call& call) {
  if (std::holds_alternative<ipc::ProbeCall>(call)) return std::chrono::seconds(20);
  if (std::holds_alternative<ipc::EvidenceCall>(call)) return std::chrono::seconds(30);
  if (std::holds_alternative<ipc::CloseCall>(call)) return std::chrono::seconds(60);
  if (std::holds_alternative<ipc::EnumerateCall>(call)) return std::chrono::seconds(30);
  const auto* open = std::get_if<ipc::OpenCall>(&call);
  if (open != nullptr && (open->flags & ISOGATE_OPEN_AS_IT_IS) != 0) return std::chrono::seconds(30);
  return std::chrono::seconds(600);  // an image to pull, a large tree to remove
}

ipc::Reply failure(uint64_t id, isogate_status status, const char* message) {
  ipc::Reply reply;
  reply.id = id;
  reply.status = status;
  reply.message = message;
  return reply;
}

}  // namespace

BackendChannel::BackendChannel(asio::any_io_executor executor, Fd socket, HostIdentity identity)
    : executor_(std::move(executor)), socket_(executor_, socket.release()), identity_(identity) {
  socket_.native_non_blocking(true);
}

void BackendChannel::start(HelloCallback on_hello, EndCallback on_end) {
  on_end_ = std::move(on_end);
  asio::co_spawn(executor_, receive_loop(std::move(on_hello)), asio::detached);
}

asio::awaitable<void> BackendChannel::receive_loop(HelloCallback on_hello) {
  const auto self = shared_from_this();
  while (open_) {
    boost::system::error_code error;
    co_await socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error || !open_) break;
    while (receive_one(on_hello)) {
    }
  }
  end();
}

// True when there may be more.
bool BackendChannel::receive_one(const HelloCallback& on_hello) {
  auto received = ipc::receive_record(socket_.native_handle(), ipc::Wait::kDont);
  if (!received) {
    if (received.error().os_errno == EAGAIN) return false;
    open_ = false;
    return false;
  }
  auto message = ipc::decode_from_host(received->bytes);
  if (!message) {
    log::error("backend_record_refused", {{"reason", message.error().message}});
    open_ = false;
    return false;
  }
  if (auto* hello = std::get_if<ipc::Hello>(&*message)) {
    on_hello(*hello);
    return true;
  }
  auto& reply = std::get<ipc::Reply>(*message);
  const auto found = pending_.find(reply.id);
  if (found != pending_.end()) {
    const auto pending = found->second;
    pending_.erase(found);
    pending->reply = std::move(reply);
    pending->done.set();
    close_if_idle();
  } else {
    abandoned_.erase(reply.id);
  }
  return open_;
}

asio::awaitable<bool> BackendChannel::send(const ipc::Encoded& record) {
  while (open_) {
    const auto sent = ipc::send_record(socket_.native_handle(), record.bytes, record.fds, ipc::Wait::kDont);
    if (sent) co_return true;
    if (sent.error().os_errno != EAGAIN) {
      log::error("backend_send_failed", {{"reason", sent.error().message}});
      break;
    }
    boost::system::error_code error;
    co_await socket_.async_wait(asio::posix::stream_descriptor::wait_write,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
  }
  co_return false;
}

asio::awaitable<ipc::Reply> BackendChannel::call(ipc::Call call, std::shared_ptr<Cancel> cancel) {
  const auto self = shared_from_this();
  const uint64_t id = next_id_++;
  if (!cancel) {
    auto made = Cancel::make(executor_);
    if (!made) co_return failure(id, ISOGATE_RESOURCE_EXHAUSTED, made.error().message.c_str());
    cancel = std::move(*made);
    cancel->fire_after(longest(call));
  }
  auto& header = header_of(call);
  header.id = id;
  header.cancel = Fd(::fcntl(cancel->event(), F_DUPFD_CLOEXEC, 0));
  if (!header.cancel) co_return failure(id, ISOGATE_RESOURCE_EXHAUSTED, "the gateway is out of descriptors");
  if (!open_) co_return failure(id, ISOGATE_UNAVAILABLE, "the backend host is not running");
  const ipc::Encoded record = ipc::encode(call);
  if (record.bytes.empty())
    co_return failure(id, ISOGATE_INVALID_ARGUMENT,
                      "a path, a name or a list is longer than a backend takes");
  const bool probe = std::holds_alternative<ipc::ProbeCall>(call);
  const auto pending = std::make_shared<Pending>(executor_);
  pending_.emplace(id, pending);
  cancel->begin([self, id, probe] { self->abandon(id, probe); });
  pending->sent = co_await send(record);
  if (!pending->sent) {
    pending_.erase(id);
    cancel->end();
    co_return failure(id, ISOGATE_UNAVAILABLE, "the backend host could not be reached");
  }
  call = ipc::ProbeCall{};  // closes what was sent
  co_await pending->done.wait();
  cancel->end();
  co_return std::move(*pending->reply);
}

void BackendChannel::abandon(uint64_t id, bool probe) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  const auto pending = found->second;
  pending_.erase(found);
  pending->reply = failure(id, ISOGATE_LOST, "the backend did not let go of the call after its cancellation");
  pending->done.set();
  log::error("backend_call_abandoned", {{"call", id}, {"probe", probe}});
  abandoned_.insert(id);
  given_up_ = probe || !pending->sent || abandoned_.size() >= kMostAbandoned;
  if (given_up_) end();
  close_if_idle();
}

void BackendChannel::retire() {
  retired_ = true;
  close_if_idle();
}

std::shared_ptr<BackendChannel> BackendChannel::hold() {
  ++holds_;
  return {this, [self = shared_from_this()](BackendChannel*) {
            --self->holds_;
            self->close_if_idle();
          }};
}

void BackendChannel::close_if_idle() {
  if (!retired_ || !pending_.empty() || holds_ > 0) return;
  open_ = false;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void BackendChannel::end() {
  open_ = false;
  boost::system::error_code ignored;
  socket_.close(ignored);
  auto lost = std::move(pending_);
  pending_.clear();
  for (auto& [id, pending] : lost) {
    pending->reply = failure(id, ISOGATE_LOST, "the backend host ended while the call was running");
    pending->done.set();
  }
  if (on_end_) std::exchange(on_end_, nullptr)();
}

}  // namespace isogate::front
