#include "tests/cli/fake_gateway.h"

#include <arpa/inet.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <stdexcept>

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
    if (connection) handle(connection.get());
  }
}

void FakeGateway::handle(int connection) {
  std::string request;
  char bytes[65536];
  while (!complete(request)) {
    ssize_t n = ::recv(connection, bytes, sizeof bytes, 0);
    if (n <= 0) break;
    request.append(bytes, static_cast<size_t>(n));
  }
  if (request.empty()) return;
  std::string answer = answer_(request);
  {
    std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
  while (hold && !stop_) {
    pollfd waiting{connection, POLLIN, 0};
    if (::poll(&waiting, 1, 50) > 0 && ::recv(connection, bytes, sizeof bytes, 0) <= 0) {
      ++closed_by_client;
      return;
    }
  }
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
