#include "tests/cli/fake_gateway.h"

#include <arpa/inet.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lib/net/websocket.h"

namespace isogate::test {
namespace {

Fd listen_tcp(std::string& url) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd.get(), 16) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("cannot listen on loopback");
  url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  return fd;
}

Fd listen_unix(const std::string& path, std::string& url) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd.get(), 16) != 0)
    throw std::runtime_error("cannot listen on " + path);
  url = "unix:" + path;
  return fd;
}

std::string header_of(const std::string& head, const std::string& name) {
  for (size_t at = 0; at < head.size();) {
    size_t end = head.find("\r\n", at);
    std::string line = head.substr(at, end - at);
    if (line.size() > name.size() && ::strncasecmp(line.c_str(), (name + ":").c_str(), name.size() + 1) == 0)
      return line.substr(name.size() + 2);
    at = end + 2;
  }
  return "";
}

bool complete(const std::string& request) {
  size_t end = request.find("\r\n\r\n");
  if (end == std::string::npos) return false;
  std::string head = request.substr(0, end + 2);
  if (header_of(head, "Transfer-Encoding") == "chunked")
    return request.find("\r\n0\r\n\r\n", end) != std::string::npos;
  std::string length = header_of(head, "Content-Length");
  return length.empty() || request.size() >= end + 4 + std::stoul(length);
}

}  // namespace

FakeGateway::FakeGateway(Answer answer, std::string unix_path)
    : answer_(std::move(answer)), unix_path_(std::move(unix_path)) {
  listener_ = unix_path_.empty() ? listen_tcp(url_) : listen_unix(unix_path_, url_);
  thread_ = std::thread([this] { serve(); });
}

FakeGateway::~FakeGateway() {
  stop_ = true;
  thread_.join();
  for (std::thread& one : attachments_) one.join();
}

std::vector<std::string> FakeGateway::requests() {
  std::lock_guard lock(mutex_);
  return requests_;
}

void FakeGateway::serve() {
  while (!stop_) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 50) <= 0) continue;
    Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) handle(std::move(connection));
  }
}

void FakeGateway::attach(Fd connection, const std::string& head) {
  const std::string answer =
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Accept: " +
      net::websocket_accept(header_of(head, "Sec-WebSocket-Key")) + "\r\n\r\n";
  ::send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  attachments_.emplace_back([this, connection = std::move(connection)] {
    FakeAttachment one(connection.get());
    attached(one);
    ::shutdown(connection.get(), SHUT_WR);  // an end, not a reset: what was sent still arrives
    while (one.next()) {
    }
  });
}

void FakeGateway::handle(Fd owned) {
  const int connection = owned.get();
  std::string request;
  char bytes[65536];
  while (!complete(request)) {
    ssize_t n = ::recv(connection, bytes, sizeof bytes, 0);
    if (n <= 0) break;
    request.append(bytes, static_cast<size_t>(n));
  }
  if (request.empty()) return;
  {
    std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const std::string head = request.substr(0, request.find("\r\n\r\n") + 2);
  if (attached && !header_of(head, "Sec-WebSocket-Key").empty()) return attach(std::move(owned), head);
  std::string answer = answer_(request);
  ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
  while (hold && !stop_) {
    pollfd waiting{connection, POLLIN, 0};
    if (::poll(&waiting, 1, 50) > 0 && ::recv(connection, bytes, sizeof bytes, 0) <= 0) {
      ++closed_by_client;
      return;
    }
  }
}

void FakeAttachment::send(int opcode, const std::string& payload) {
  std::string frame(1, static_cast<char>(0x80 | opcode));
  if (payload.size() < 126) {
    frame += static_cast<char>(payload.size());
  } else {
    frame += '\x7f';
    for (int shift = 56; shift >= 0; shift -= 8) frame += static_cast<char>(payload.size() >> shift & 255);
    if (payload.size() < 65536) frame = {frame[0], '\x7e', frame[8], frame[9]};
  }
  frame += payload;
  ::send(connection_, frame.data(), frame.size(), MSG_NOSIGNAL);
}

void FakeAttachment::output(char stream, uint64_t offset, const std::string& bytes) {
  std::string message(1, stream);
  for (int shift = 56; shift >= 0; shift -= 8) message += static_cast<char>(offset >> shift & 255);
  send(2, message + bytes);
}

void FakeAttachment::exit(int code) {
  text(R"({"event":"exit","outcome":"exited","exit_code":)" + std::to_string(code) + "}");
  close(1000, "");
}

void FakeAttachment::close(uint16_t code, const std::string& reason) {
  send(8, net::close_payload(code) + reason);
}

bool FakeAttachment::take(char* to, size_t size) {
  while (size > 0) {
    pollfd waiting{connection_, POLLIN, 0};
    if (::poll(&waiting, 1, 20'000) <= 0) return false;
    const ssize_t n = ::recv(connection_, to, size, 0);
    if (n <= 0) return false;
    to += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

std::optional<FakeAttachment::Message> FakeAttachment::next() {
  unsigned char head[2], more[8];
  if (!take(reinterpret_cast<char*>(head), 2)) return std::nullopt;
  uint64_t size = head[1] & 0x7f;
  const size_t length_bytes = size == 127 ? 8 : size == 126 ? 2 : 0;
  if (!take(reinterpret_cast<char*>(more), length_bytes)) return std::nullopt;
  if (length_bytes > 0) size = 0;
  for (size_t i = 0; i < length_bytes; ++i) size = size << 8 | more[i];
  net::Mask mask{};
  Message message{head[0] & 0x0f, std::string(size, '\0')};
  if (!take(reinterpret_cast<char*>(mask.data()), mask.size())) return std::nullopt;
  if (!take(message.bytes.data(), size)) return std::nullopt;
  net::apply_mask(message.bytes.data(), size, mask);
  return message;
}

bool FakeAttachment::receives(const std::string& all) {
  while (received_.find(all) == std::string::npos) {
    const auto message = next();
    if (!message || message->opcode == 8) return false;
    received_ += message->bytes;
  }
  received_.erase(0, received_.find(all) + all.size());
  return true;
}

nlohmann::json body_of(const std::string& request) {
  return nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4));
}

std::string json_answer(int status, const std::string& body, const std::string& headers) {
  return "HTTP/1.1 " + std::to_string(status) +
         " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         headers + "\r\n" + body;
}

std::string refusal(int status, const std::string& code, const std::string& message) {
  return json_answer(status, R"({"error":{"code":")" + code + R"(","message":")" + message +
                                 R"(","retryable":false,"details":{}},"request_id":"r1"})");
}

ProgramResult run_client(const std::string& url, std::vector<std::string> arguments, ProgramOptions options) {
  options.env.insert(
      options.env.begin(),
      {{"ISOGATE_URL", url}, {"ISOGATE_KEY", "test-key"}, {"ISOGATE_STATE_DIR", "/nonexistent"}});
  return run_isogate(std::move(arguments), options);
}

}  // namespace isogate::test
