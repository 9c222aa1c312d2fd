#include "plugins/k8s/http.h"

#include <Poco/Buffer.h>
#include <Poco/Exception.h>
#include <Poco/Net/HTTPClientSession.h>
#include <Poco/Net/HTTPRequest.h>
#include <Poco/Net/HTTPResponse.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <istream>
#include <optional>
#include <ostream>

#include "plugins/k8s/api_error.h"
#include "plugins/k8s/poco_socket.h"

namespace isogate::k8s {
namespace {

using Poco::Net::HTTPMessage;

// Poco's session, which shows how much it has read ahead.
class Session : public Poco::Net::HTTPClientSession {
 public:
  explicit Session(const Poco::Net::StreamSocket& socket) : HTTPClientSession(socket) { setKeepAlive(true); }
  [[nodiscard]] bool read_ahead() const { return buffered() != 0; }
  void forget_failure() { clearException(); }
};

ApiError unavailable(const std::string& why) {
  return {ISOGATE_UNAVAILABLE, "the API server " + why, 0, true};
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

uint64_t parse_length(const std::string& digits) {
  uint64_t length = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, length);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    throw unavailable("answered with a Content-Length that is none");
  return length;
}

}  // namespace

struct HttpConnection::Impl {
  enum class Framing { kNone, kLength, kChunked, kUntilEnd };

  Impl(std::unique_ptr<Transport> transport, std::string name)
      : host(std::move(name)),
        socket(new PocoSocket(std::move(transport))),
        session(Poco::Net::StreamSocket(socket)) {}

  void send(const HttpRequest& request);
  HttpHead receive(const HttpRequest& request);
  void set_framing(const HttpRequest& request, const HttpHead& head);
  void end_body();
  // Runs a step of Poco; what stopped its socket is the reason, whatever Poco made of it.
  template <typename Step>
  auto guarded(const Budget& budget, Step step);

  const std::string host;
  PocoSocket* const socket;  // the session's
  Session session;
  std::istream* body = nullptr;
  Framing framing = Framing::kNone;
  uint64_t left = 0;  // of a body with a length
  bool keep = false;  // the API server will
  bool done = true;   // the last answer was read to its end
};

template <typename Step>
auto HttpConnection::Impl::guarded(const Budget& budget, Step step) {
  socket->begin(budget);
  try {
    return step();
  } catch (const Poco::Exception& error) {
    socket->rethrow_failure();
    socket->kill();
    if (socket->ended()) throw unavailable("broke off the connection before its answer was whole");
    throw unavailable("gave an answer that is no HTTP: " + printable(error.displayText()));
  } catch (...) {
    socket->kill();
    throw;
  }
}

void HttpConnection::Impl::send(const HttpRequest& request) {
  Poco::Net::HTTPRequest head(request.method, request.target, HTTPMessage::HTTP_1_1);
  head.setHost(host);
  head.set("User-Agent", std::string("isogate/") + ISOGATE_VERSION);
  for (const auto& [name, value] : request.headers) head.add(name, value);
  if (!request.body.empty()) head.setContentLength64(static_cast<Poco::Int64>(request.body.size()));
  std::ostream& out = session.sendRequest(head);
  out.write(request.body.data(), static_cast<std::streamsize>(request.body.size()));
  out.flush();
  if (!out) throw Poco::RuntimeException("the request was not taken");
}

HttpHead HttpConnection::Impl::receive(const HttpRequest& request) {
  constexpr int kFieldsMost = 100;
  Poco::Net::HTTPResponse response;
  response.setFieldLimit(kFieldsMost);
  body = &session.receiveResponse(response);
  socket->rethrow_failure();
  HttpHead head;
  head.status = response.getStatus();
  for (const auto& [name, value] : response) head.headers[lower(name)] = value;
  keep = response.getKeepAlive();
  set_framing(request, head);
  return head;
}

void HttpConnection::Impl::set_framing(const HttpRequest& request, const HttpHead& head) {
  const std::string coding = lower(head.header("transfer-encoding"));
  const std::string length = head.header("content-length");
  left = 0;
  if (request.method == "HEAD" || head.status < 200 || head.status == 204 || head.status == 304) {
    framing = Framing::kNone;
  } else if (!coding.empty()) {
    if (coding != "chunked" || !length.empty()) throw unavailable("answered with a length that is unclear");
    framing = Framing::kChunked;
  } else if (!length.empty()) {
    framing = Framing::kLength;
    left = parse_length(length);
  } else {
    framing = Framing::kUntilEnd;
  }
  done = framing == Framing::kNone || (framing == Framing::kLength && left == 0);
}

// Poco's streams end alike where an answer ends and where it breaks off.
void HttpConnection::Impl::end_body() {
  socket->rethrow_failure();
  const bool whole =
      framing == Framing::kUntilEnd || (framing == Framing::kChunked && !socket->ended() &&
                                        !session.read_ahead() && socket->tail() == "0\r\n\r\n");
  if (!whole && socket->ended()) throw unavailable("broke off its answer");
  if (!whole) throw unavailable("gave an answer that is no HTTP");
  if (framing == Framing::kUntilEnd) keep = false;
  done = true;
}

HttpConnection::HttpConnection(std::unique_ptr<Transport> transport, std::string host)
    : impl_(std::make_unique<Impl>(std::move(transport), std::move(host))) {}

HttpConnection::~HttpConnection() { impl_->socket->kill(); }

HttpHead HttpConnection::exchange(const HttpRequest& request, const Budget& budget) {
  return impl_->guarded(budget, [&] {
    impl_->socket->begin_request();
    impl_->done = false;
    try {
      impl_->send(request);
    } catch (const Poco::Exception&) {
      // A server that refuses early answers before it has taken everything.
      if (!impl_->socket->refused_to_take()) throw;
      impl_->session.forget_failure();
    }
    return impl_->receive(request);
  });
}

size_t HttpConnection::read_body(char* to, size_t size, const Budget& budget) {
  return impl_->guarded(budget, [&]() -> size_t {
    if (impl_->done) return 0;
    const bool sized = impl_->framing == Impl::Framing::kLength;
    const size_t most = sized ? std::min<uint64_t>(size, impl_->left) : size;
    // What is there, waiting for the first byte alone.
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

std::string HttpConnection::read_body(size_t most, const Budget& budget) {
  std::string all;
  std::array<char, 16384> buffer{};
  if (impl_->framing == Impl::Framing::kLength && impl_->left > most) {
    impl_->socket->kill();
    throw unavailable("gave an answer of more than " + std::to_string(most >> 20) + " MiB");
  }
  while (const size_t got = read_body(buffer.data(), buffer.size(), budget)) {
    if (all.size() + got > most) {
      impl_->socket->kill();
      throw unavailable("gave an answer of more than " + std::to_string(most >> 20) + " MiB");
    }
    all.append(buffer.data(), got);
  }
  return all;
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

}  // namespace isogate::k8s
