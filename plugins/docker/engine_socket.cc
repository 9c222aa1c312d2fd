#include "plugins/docker/engine_socket.h"

#include <Poco/Exception.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "plugins/docker/engine_error.h"

namespace isogate::docker {
namespace {

std::string seconds(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? std::to_string(time.count() / 1000) + " s"
                                  : std::to_string(time.count()) + " ms";
}

bool try_again(int failure) { return failure == EAGAIN || failure == EWOULDBLOCK || failure == EINTR; }

}  // namespace

EngineSocket::EngineSocket(std::unique_ptr<Transport> transport)
    : StreamSocketImpl(transport->fd()), transport_(std::move(transport)) {}

EngineSocket::~EngineSocket() { reset(); }

void EngineSocket::begin_request() {
  received_ = refused_ = false;
  tail_.clear();
}

void EngineSocket::kill() {
  dead_ = true;
  if (transport_) transport_->shutdown();
}

bool EngineSocket::usable() {
  return !dead_ && !ended_ && !refused_ && !failure_ && transport_ && !transport_->stale();
}

void EngineSocket::rethrow_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

bool EngineSocket::refused_to_take() {
  if (refused_) failure_ = nullptr;
  return refused_;
}

std::unique_ptr<Transport> EngineSocket::release() {
  dead_ = true;
  return std::move(transport_);
}

void EngineSocket::fail(isogate_status status, const std::string& why) {
  if (!failure_) failure_ = std::make_exception_ptr(EngineError(status, why, 0, true));
  throw Poco::RuntimeException(why);
}

void EngineSocket::wait(short events) {
  switch (budget_.wait(transport_->fd(), events)) {
    case Budget::Outcome::kReady:
      return;
    case Budget::Outcome::kCancelled:
      dead_ = true;
      fail(ISOGATE_CANCELLED, "cancelled");
    case Budget::Outcome::kLate:
      dead_ = true;
      fail(ISOGATE_UNAVAILABLE, "the Engine did not answer within " + seconds(budget_.whole()));
  }
}

void EngineSocket::note(const char* bytes, size_t size) {
  constexpr size_t kTail = 5;
  received_ = true;
  tail_.append(bytes + (size > kTail ? size - kTail : 0), std::min(size, kTail));
  if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
}

int EngineSocket::sendBytes(const void* buffer, int length, int) {
  int sent = 0;
  while (sent < length) {
    if (refused_) return length;  // Poco may end the request that nobody takes
    if (dead_ || !transport_) throw Poco::RuntimeException("the connection is closed");
    const ssize_t n =
        transport_->write_some(static_cast<const char*>(buffer) + sent, static_cast<size_t>(length - sent));
    if (n > 0) {
      sent += static_cast<int>(n);
    } else if (try_again(errno)) {
      wait(POLLOUT);
    } else {
      refused_ = true;
      fail(ISOGATE_UNAVAILABLE, "the Engine broke off the connection");
    }
  }
  return sent;
}

int EngineSocket::receiveBytes(void* buffer, int length, int) {
  for (;;) {
    if (dead_ || !transport_) throw Poco::RuntimeException("the connection is closed");
    const ssize_t n = transport_->read_some(static_cast<char*>(buffer), static_cast<size_t>(length));
    if (n > 0) {
      note(static_cast<const char*>(buffer), static_cast<size_t>(n));
      return static_cast<int>(n);
    }
    if (n == 0) {
      ended_ = true;
      return 0;
    }
    if (try_again(errno)) {
      wait(POLLIN);
    } else {
      ended_ = true;
      fail(ISOGATE_UNAVAILABLE, "the Engine broke off the connection");
    }
  }
}

void EngineSocket::connect(const Poco::Net::SocketAddress&) {
  fail(ISOGATE_UNAVAILABLE, "the Engine has gone");
}
void EngineSocket::connect(const Poco::Net::SocketAddress& address, const Poco::Timespan&) {
  connect(address);
}
void EngineSocket::connectNB(const Poco::Net::SocketAddress& address) { connect(address); }

void EngineSocket::close() { kill(); }
void EngineSocket::shutdown() { kill(); }

}  // namespace isogate::docker
