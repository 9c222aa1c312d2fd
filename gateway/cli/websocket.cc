#include "gateway/cli/websocket.h"

#include <strings.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "lib/net/http.h"

namespace isogate::cli {
namespace {

constexpr std::chrono::seconds kOpenMost{60};
constexpr size_t kRefusalMost = 1u << 20;
constexpr size_t kUnsentMost = 1u << 20;  // stdin is held back long before
constexpr uint16_t kNormalClosure = 1000;

HttpAnswer refusal(net::HttpConnection& connection, const net::HttpHead& head, const HttpClient& client,
                   const net::Budget& budget) {
  HttpAnswer answer{head.status, connection.read_reason(kRefusalMost, budget), head.header("retry-after")};
  answer.key_over_socket = !client.key().empty() && !client.endpoint().unix_path.empty();
  return answer;
}

Error ended(const std::string& why) { return {ISOGATE_LOST, 0, why}; }

Error closed_by(std::string_view payload) {
  if (payload.size() < 2) return ended("the gateway closed the connection");
  const int code = static_cast<unsigned char>(payload[0]) << 8 | static_cast<unsigned char>(payload[1]);
  const std::string reason = net::one_line(payload.substr(2));
  return ended("the gateway closed the connection (" + std::to_string(code) +
               (reason.empty() ? ")" : ", " + reason + ")"));
}

}  // namespace

Result<WebSocket::Opened> WebSocket::open(const HttpClient& client, const std::string& target,
                                          int cancel_fd) try {
  const Endpoint& endpoint = client.endpoint();
  const net::Budget budget(kOpenMost, cancel_fd);
  net::HttpConnection connection(net::Transport::connect(endpoint.target(), budget), endpoint.host_field(),
                                 endpoint.name());
  const std::string key = net::new_websocket_key();
  net::HttpRequest request{"GET", target, "", {}};
  request.headers = {{"Connection", "Upgrade"},
                     {"Upgrade", "websocket"},
                     {"Sec-WebSocket-Version", "13"},
                     {"Sec-WebSocket-Key", key}};
  if (!client.key().empty()) request.headers.emplace_back("Authorization", "Bearer " + client.key());
  const net::HttpHead head = connection.exchange(request, budget);
  if (head.status != 101) return Opened(refusal(connection, head, client, budget));
  if (::strcasecmp(head.header("upgrade").c_str(), "websocket") != 0 ||
      head.header("sec-websocket-accept") != net::websocket_accept(key) ||
      !head.header("sec-websocket-extensions").empty())
    return ended("the answer of " + endpoint.name() + " is no WebSocket's");
  std::string early;
  auto transport = connection.detach(early);
  return Opened(std::unique_ptr<WebSocket>(new WebSocket(std::move(transport), std::move(early))));
} catch (const sdk::Error& error) {
  return client.endpoint().failure(error);
}

void WebSocket::send(net::Opcode opcode, std::string_view payload) {
  if (!broken_) net::append_message(out_, opcode, payload);
}

void WebSocket::send_close() { send(net::Opcode::kClose, net::close_payload(kNormalClosure)); }

void WebSocket::flush() {
  while (!out_.empty()) {
    const ssize_t n = transport_->write_some(out_.data(), out_.size());
    if (n < 0 && would_block(errno)) return;
    broken_ = n <= 0;
    out_.erase(0, broken_ ? out_.size() : static_cast<size_t>(n));
  }
}

Result<void> WebSocket::receive(const Handlers& to) {
  std::string bytes = std::exchange(early_, {});
  if (!bytes.empty()) return take(bytes, to);
  bytes.resize(kPieceBytes);
  const ssize_t n = transport_->read_some(bytes.data(), bytes.size());
  if (n < 0 && would_block(errno)) return {};
  if (n < 0) return ended(os_error("cannot receive", errno).message);
  if (n == 0) return ended("the connection ended");
  bytes.resize(static_cast<size_t>(n));
  return take(bytes, to);
}

Result<void> WebSocket::take(std::string_view bytes, const Handlers& to) {
  using Event = net::FrameReader::Event;
  for (;;) {
    const auto step = reader_.next(bytes);
    bytes.remove_prefix(step.taken);
    switch (step.event) {
      case Event::kMore:
        return {};
      case Event::kData:
        reader_.took(step.data.size());
        bytes.remove_prefix(step.data.size());
        if (!step.text) {
          to.binary(step.data, step.begins);
        } else if (text_.size() + step.data.size() <= kTextMost) {
          text_ += step.data;
        } else {
          return ended("the gateway sent a text message over 1 MiB");
        }
        break;
      case Event::kTextEnd:
        to.text(std::exchange(text_, {}));
        break;
      case Event::kPing:
        if (unsent() > kUnsentMost) return ended("the gateway sends pings and reads nothing");
        send(net::Opcode::kPong, step.data);
        break;
      case Event::kPong:
        break;
      case Event::kClose:
        return closed_by(step.data);
      case Event::kBroken:
        return ended(std::string("the gateway broke the protocol: ") + reader_.why());
    }
  }
}

}  // namespace isogate::cli
