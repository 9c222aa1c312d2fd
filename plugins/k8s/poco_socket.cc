#include "plugins/k8s/poco_socket.h"

#include <Poco/Exception.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "plugins/k8s/api_error.h"

namespace isogate::k8s {
namespace {

std::string seconds(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? std::to_string(time.count() / 1000) + " s"
                                  : std::to_string(time.count()) + " ms";
}

bool try_again(int failure) { return failure == EAGAIN || failure == EWOULDBLOCK || failure == EINTR; }

}  // namespace

PocoSocket::PocoSocket(std::unique_ptr<Transport> transport)
    : StreamSocketImpl(transport->fd()), transport_(std::move(transport)) {}

PocoSocket::~PocoSocket() { reset(); }

void PocoSocket::begin_request() {
  received_ = refused_ = false;
  tail_.clear();
}

void PocoSocket::kill() {
  dead_ = true;
  if (transport_) transport_->shutdown();
}

bool PocoSocket::usable() {
  return !dead_ && !ended_ && !refused_ && !failure_ && transport_ && !transport_->stale();
}

void PocoSocket::rethrow_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

bool PocoSocket::refused_to_take() {
  if (refused_) failure_ = nullptr;
  return refused_;
}

std::unique_ptr<Transport> PocoSocket::release() {
  dead_ = true;
  return std::move(transport_);
}

void PocoSocket::fail(isogate_status status, const std::string& why) {
  if (!failure_) failure_ = std::make_exception_ptr(ApiError(status, why, 0, true));
  throw Poco::RuntimeException(why);
}

void PocoSocket::wait(short events) {
  switch (budget_.wait(transport_->fd(), events)) {
    case Budget::Outcome::kReady:
      return;
    case Budget::Outcome::kCancelled:
      dead_ = true;
      fail(ISOGATE_CANCELLED, "cancelled");
    case Budget::Outcome::kLate:
      dead_ = true;
      fail(ISOGATE_UNAVAILABLE, "the API server did not answer within " + seconds(budget_.whole()));
  }
}

void PocoSocket::note(const char* bytes, size_t size) {
  constexpr size_t kTail = 5;
  received_ = true;
  tail_.append(bytes + (size > kTail ? size - kTail : 0), std::min(size, kTail));
  if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
}

int PocoSocket::sendBytes(const void* buffer, int length, int) {
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
      fail(ISOGATE_UNAVAILABLE, "the API server broke off the connection");
    }
  }
  return sent;
}

int PocoSocket::receiveBytes(void* buffer, int length, int) {
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
      fail(ISOGATE_UNAVAILABLE, "the API server broke off the connection");
    }
  }
}

void PocoSocket::connect(const Poco::Net::SocketAddress&) {
  fail(ISOGATE_UNAVAILABLE, "the API server has gone");
}
void PocoSocket::connect(const Poco::Net::SocketAddress& address, const Poco::Timespan&) { connect(address); }
void PocoSocket::connectNB(const Poco::Net::SocketAddress& address) { connect(address); }

void PocoSocket::close() { kill(); }
void PocoSocket::shutdown() { kill(); }

}  // namespace isogate::k8s
