#include "lib/net/http.h"

#include <Poco/Buffer.h>
#include <Poco/Exception.h>
#include <Poco/Net/HTTPClientSession.h>
#include <Poco/Net/HTTPRequest.h>
#include <Poco/Net/HTTPResponse.h>
#include <Poco/Net/StreamSocketImpl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <exception>
#include <istream>
#include <optional>
#include <ostream>
#include <sstream>

#include "lib/text.h"

namespace isogate::net {
namespace {

using Poco::Net::HTTPMessage;

// Blocks within the budget of the current step. A failure is kept, because Poco's streams swallow it. After
// it nothing is sent or received: an interrupted request never gets the end that Poco's destructors would
// write. HTTPClientSession repeats a request after an IOException, so this throws RuntimeException, and never
// connects.
class PocoSocket : public Poco::Net::StreamSocketImpl {
 public:
  PocoSocket(std::unique_ptr<Transport> transport, const std::string& name);

  void begin(const Budget& budget) { budget_ = budget; }
  void begin_request();
  void kill();                                               // nothing more goes out or comes in
  [[nodiscard]] bool usable();                               // for another request
  void rethrow_failure();                                    // when there was one
  [[nodiscard]] bool ended() const { return ended_; }        // the other side has closed
  [[nodiscard]] bool received() const { return received_; }  // a byte, since begin_request()
  // The other side stopped reading; what it has sent can still be read: refused_to_take() forgets the
  // failure.
  [[nodiscard]] bool refused() const { return refused_; }
  bool refused_to_take();
  [[nodiscard]] const std::string& tail() const { return tail_; }  // the last five bytes received
  std::unique_ptr<Transport> release();

  int sendBytes(const void* buffer, int length, int flags) override;
  int receiveBytes(void* buffer, int length, int flags) override;
  void connect(const Poco::Net::SocketAddress& address) override;
  void connect(const Poco::Net::SocketAddress& address, const Poco::Timespan& timeout) override;
  void connectNB(const Poco::Net::SocketAddress& address) override;
  void close() override;
  void shutdown() override;

 protected:
  ~PocoSocket() override;

 private:
  void wait(short events);
  [[noreturn]] void fail(isogate_status status, const std::string& why);
  [[noreturn]] void fail_broken();
  void note(const char* bytes, size_t size);

  std::unique_ptr<Transport> transport_;
  const std::string& name_;  // of the server
  Budget budget_{std::chrono::milliseconds(0)};
  std::exception_ptr failure_;
  std::string tail_;
  bool dead_ = false, ended_ = false, received_ = false, refused_ = false;
};

PocoSocket::PocoSocket(std::unique_ptr<Transport> transport, const std::string& name)
    : StreamSocketImpl(transport->fd()), transport_(std::move(transport)), name_(name) {}

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
  if (!failure_) failure_ = std::make_exception_ptr(NetError(status, why, 0, true));
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
      fail(ISOGATE_UNAVAILABLE, name_ + " " + budget_.lateness(events));
  }
}

void PocoSocket::fail_broken() {
  const std::string reason = std::generic_category().message(errno);
  const std::string what = name_ + " broke off the connection", why = transport_->tls_failure();
  if (!why.empty() && !failure_)
    failure_ = std::make_exception_ptr(NetError::of_tls(ISOGATE_UNAVAILABLE, what, why, true));
  fail(ISOGATE_UNAVAILABLE, what + ": " + reason);
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
    if (refused_) return length;  // lets Poco end the request that is not read any more
    if (dead_ || !transport_) throw Poco::RuntimeException("the connection is closed");
    const ssize_t n =
        transport_->write_some(static_cast<const char*>(buffer) + sent, static_cast<size_t>(length - sent));
    if (n > 0) {
      sent += static_cast<int>(n);
    } else if (would_block(errno)) {
      wait(POLLOUT);
    } else {
      refused_ = true;
      fail_broken();
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
    if (would_block(errno)) {
      wait(POLLIN);
    } else {
      ended_ = true;
      fail_broken();
    }
  }
}

void PocoSocket::connect(const Poco::Net::SocketAddress&) { fail(ISOGATE_UNAVAILABLE, name_ + " has gone"); }
void PocoSocket::connect(const Poco::Net::SocketAddress& address, const Poco::Timespan&) { connect(address); }
void PocoSocket::connectNB(const Poco::Net::SocketAddress& address) { connect(address); }

void PocoSocket::close() { kill(); }
void PocoSocket::shutdown() { kill(); }

// Poco's session, which shows how much it has read ahead.
class Session : public Poco::Net::HTTPClientSession {
 public:
  explicit Session(const Poco::Net::StreamSocket& socket) : HTTPClientSession(socket) { setKeepAlive(true); }
  [[nodiscard]] bool read_ahead() const { return buffered() != 0; }
  void forget_failure() { clearException(); }
};

}  // namespace

struct HttpConnection::Impl {
  enum class Framing { kNone, kLength, kChunked, kUntilEnd };

  Impl(std::unique_ptr<Transport> transport, std::string of_host, std::string of_server)
      : host(std::move(of_host)),
        name(std::move(of_server)),
        socket(new PocoSocket(std::move(transport), name)),
        session(Poco::Net::StreamSocket(socket)) {}

  [[nodiscard]] NetError unavailable(const std::string& why) const {
    return {ISOGATE_UNAVAILABLE, name + " " + why, 0, true};
  }
  [[nodiscard]] uint64_t length_of(const std::string& digits) const;
  [[nodiscard]] int status_of(const Poco::Net::HTTPResponse& response) const;
  void send(const HttpRequest& request);
  HttpHead receive(const HttpRequest& request);
  void set_framing(const HttpRequest& request, const HttpHead& head);
  void end_body();
  // Runs a step of Poco; the failure of its socket is the reason, whatever Poco throws.
  template <typename Step>
  auto guarded(const Budget& budget, Step step);

  const std::string host, name;
  PocoSocket* const socket;  // the session's
  Session session;
  std::istream* body = nullptr;
  Framing framing = Framing::kNone;
  uint64_t left = 0;  // of a body with a length
  bool keep = false;  // the server keeps the connection
  bool done = true;   // the last answer was read to its end
};

uint64_t HttpConnection::Impl::length_of(const std::string& digits) const {
  const auto length = number_in<uint64_t>(digits);
  if (!length) throw unavailable("answered with an invalid Content-Length");
  return *length;
}

// Poco stores any number in an enumeration that is too narrow for most of them, and reading it there is
// undefined; it writes it as a number. It does not check the version either.
int HttpConnection::Impl::status_of(const Poco::Net::HTTPResponse& response) const {
  if (response.getVersion() != HTTPMessage::HTTP_1_1 && response.getVersion() != HTTPMessage::HTTP_1_0)
    throw unavailable("gave an answer that is no HTTP");
  std::ostringstream text;
  response.write(text);
  const std::string line = text.str();
  const size_t begin = line.find(' ') + 1;
  int status = 0;
  std::from_chars(line.data() + begin, line.data() + line.size(), status);
  if (status < 100 || status > 599) throw unavailable("answered with an invalid status");
  return status;
}

template <typename Step>
auto HttpConnection::Impl::guarded(const Budget& budget, Step step) {
  socket->begin(budget);
  try {
    return step();
  } catch (const Poco::Exception& error) {
    socket->rethrow_failure();
    socket->kill();
    if (socket->ended()) throw unavailable("broke off the connection before its answer was whole");
    throw unavailable("gave an answer that is no HTTP: " + one_line(error.displayText()));
  } catch (...) {
    socket->kill();
    throw;
  }
}

void HttpConnection::Impl::send(const HttpRequest& request) {
  Poco::Net::HTTPRequest head(request.method, request.target, HTTPMessage::HTTP_1_1);
  head.setHost(host);
  head.set("User-Agent", std::string("isogate/") + ISOGATE_VERSION);
  for (const auto& [field, value] : request.headers) head.add(field, value);
  if (request.produced)
    head.setContentLength64(static_cast<Poco::Int64>(*request.produced));
  else if (request.produce)
    head.setChunkedTransferEncoding(true);
  else if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    head.setContentLength64(static_cast<Poco::Int64>(request.body.size()));
  std::ostream& out = session.sendRequest(head);
  const auto write = [&out, this](std::string_view piece) {
    out.write(piece.data(), static_cast<std::streamsize>(piece.size()));
    if (!out || socket->refused()) throw Poco::RuntimeException("the request was not taken");
  };
  if (request.produce)
    request.produce(write);
  else
    write(request.body);
  out.flush();
  if (!out) throw Poco::RuntimeException("the request was not taken");
  session.flushRequest();  // the end of a chunked request, too
}

HttpHead HttpConnection::Impl::receive(const HttpRequest& request) {
  constexpr int kFieldsMost = 100;
  Poco::Net::HTTPResponse response;
  response.setFieldLimit(kFieldsMost);
  body = &session.receiveResponse(response);
  socket->rethrow_failure();
  // Poco takes a truncated head for a short one. A complete one is never read past its end.
  if (socket->ended()) throw unavailable("broke off the connection before its answer was whole");
  HttpHead head;
  head.status = status_of(response);
  for (const auto& [field, value] : response) {
    std::string& known = head.headers[to_lower(field)];
    if (!known.empty() && known != value && to_lower(field) == "content-length")
      throw unavailable("answered with a length that is unclear");
    known = value;
  }
  keep = response.getKeepAlive();
  set_framing(request, head);
  return head;
}

void HttpConnection::Impl::set_framing(const HttpRequest& request, const HttpHead& head) {
  const std::string coding = to_lower(head.header("transfer-encoding"));
  const std::string length = head.header("content-length");
  left = 0;
  if (request.method == "HEAD" || head.status < 200 || head.status == 204 || head.status == 304) {
    framing = Framing::kNone;
  } else if (!coding.empty()) {
    if (coding != "chunked" || !length.empty()) throw unavailable("answered with a length that is unclear");
    framing = Framing::kChunked;
  } else if (!length.empty()) {
    framing = Framing::kLength;
    left = length_of(length);
  } else {
    framing = Framing::kUntilEnd;
  }
  done = framing == Framing::kNone || (framing == Framing::kLength && left == 0);
}

// Poco's streams end in the same way when a response ends and when it breaks off.
void HttpConnection::Impl::end_body() {
  socket->rethrow_failure();
  const bool whole =
      framing == Framing::kUntilEnd || (framing == Framing::kChunked && !socket->ended() &&
                                        !session.read_ahead() && socket->tail() == "0\r\n\r\n");
  if (!whole && socket->ended() && framing == Framing::kLength)
    throw unavailable("broke off its answer " + std::to_string(left) + " bytes before its end");
  if (!whole && socket->ended()) throw unavailable("broke off its answer");
  if (!whole) throw unavailable("gave an answer that is no HTTP");
  if (framing == Framing::kUntilEnd) keep = false;
  done = true;
}

HttpConnection::HttpConnection(std::unique_ptr<Transport> transport, std::string host, std::string name)
    : impl_(std::make_unique<Impl>(std::move(transport), std::move(host), std::move(name))) {}

HttpConnection::~HttpConnection() { impl_->socket->kill(); }

HttpHead HttpConnection::exchange(const HttpRequest& request, const Budget& budget) {
  return impl_->guarded(budget, [&] {
    impl_->socket->begin_request();
    impl_->done = false;
    bool stopped_reading = false;
    try {
      impl_->send(request);
    } catch (const Poco::Exception&) {
      // A server that refuses early responds before it has read everything.
      stopped_reading = impl_->socket->refused_to_take();
      if (!stopped_reading) throw;
      impl_->session.forget_failure();
    }
    HttpHead head = impl_->receive(request);
    if (stopped_reading && head.status < Poco::Net::HTTPResponse::HTTP_MULTIPLE_CHOICES)
      throw impl_->unavailable("stopped reading the request, and did not refuse it");
    return head;
  });
}

size_t HttpConnection::read_body(char* to, size_t size, const Budget& budget) {
  return impl_->guarded(budget, [&]() -> size_t {
    if (impl_->done) return 0;
    const bool sized = impl_->framing == Impl::Framing::kLength;
    const size_t most = sized ? std::min<uint64_t>(size, impl_->left) : size;
    // The available bytes, waiting only for the first one.
    if (impl_->body->peek() == std::char_traits<char>::eof()) {
      impl_->end_body();
      return 0;
    }
    const auto got = static_cast<size_t>(impl_->body->readsome(to, static_cast<std::streamsize>(most)));
    if (sized) impl_->left -= got;
    if (sized && impl_->left == 0) impl_->done = true;
    return got;
  });
}

std::string HttpConnection::read_reason(size_t most, const Budget& budget) {
  std::string all;
  std::array<char, 16384> buffer{};
  while (const size_t got = read_body(buffer.data(), buffer.size(), budget)) {
    const size_t room = most - all.size();
    all.append(buffer.data(), std::min(got, room));
    if (got <= room) continue;
    impl_->socket->kill();
    impl_->done = false;
    break;
  }
  return all;
}

std::string HttpConnection::read_body(size_t most, const Budget& budget) {
  const bool is_larger = impl_->framing == Impl::Framing::kLength && impl_->left > most;
  std::string all = is_larger ? std::string() : read_reason(most, budget);
  if (!is_larger && impl_->done) return all;
  impl_->socket->kill();
  throw impl_->unavailable("gave an answer of more than " + std::to_string(most >> 20) + " MiB");
}

bool HttpConnection::reusable() {
  return impl_->done && impl_->keep && !impl_->session.read_ahead() && impl_->socket->usable();
}

bool HttpConnection::answered() const { return impl_->socket->received(); }
bool HttpConnection::broken_off() const { return impl_->socket->ended(); }

std::unique_ptr<Transport> HttpConnection::detach(std::string& early) {
  Poco::Buffer<char> buffer(0);
  impl_->session.drainBuffer(buffer);
  early.assign(buffer.begin(), buffer.size());
  return impl_->socket->release();
}

std::optional<std::string> HttpLines::next(const Budget& budget) {
  for (;;) {
    const size_t end = pending_.find('\n', searched_);
    searched_ = std::min(end, pending_.size());
    if (searched_ > most_) throw NetError(ISOGATE_UNAVAILABLE, too_long_);
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      searched_ = 0;
      return line;
    }
    std::array<char, 16384> buffer{};
    const size_t got = connection_->read_body(buffer.data(), buffer.size(), budget);
    if (got == 0) return std::nullopt;
    pending_.append(buffer.data(), got);
  }
}

}  // namespace isogate::net
