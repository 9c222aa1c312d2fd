#include "tests/support/http.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace isogate::test {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("http: " + what); }
[[noreturn]] void fail_errno(const std::string& what) { fail(what + ": " + std::strerror(errno)); }

Fd connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) fail("socket path too long: " + path);
  path.copy(address.sun_path, path.size());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) fail_errno("cannot make a socket");
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    fail_errno("cannot connect to " + path);
  return socket;
}

Fd connect_tcp(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) fail("cannot resolve " + host);
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Fd socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket && ::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) return socket;
  }
  fail_errno("cannot connect to " + host + ":" + port);
}

bool has(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers)
    if (key.size() == name.size() && ::strncasecmp(key.data(), name.data(), name.size()) == 0) return true;
  return false;
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

std::string HttpResponse::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key.size() == name.size() && ::strncasecmp(key.data(), name.data(), name.size()) == 0) return value;
  return {};
}

HttpConnection::HttpConnection(const std::string& url, double timeout_sec) : timeout_sec_(timeout_sec) {
  if (url.rfind("unix:", 0) == 0) {
    host_ = "localhost";
    socket_ = connect_unix(url.substr(5));
    return;
  }
  if (url.rfind("http://", 0) != 0) fail("not a url this client knows: " + url);
  host_ = url.substr(7);
  size_t colon = host_.rfind(':');
  if (colon == std::string::npos) fail("no port in " + url);
  std::string name = host_.substr(0, colon);
  if (name.size() > 2 && name.front() == '[') name = name.substr(1, name.size() - 2);
  socket_ = connect_tcp(name, host_.substr(colon + 1));
}

void HttpConnection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd waiting{socket_.get(), POLLOUT, 0};
    if (::poll(&waiting, 1, static_cast<int>(timeout_sec_ * 1000)) == 0) fail("the peer takes no bytes");
    ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) fail_errno("cannot send");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void HttpConnection::send_request_head(const std::string& method, const std::string& target,
                                       const Headers& headers) {
  std::string head = method + " " + target + " HTTP/1.1\r\n";
  if (!has(headers, "Host")) head += "Host: " + host_ + "\r\n";
  for (const auto& [key, value] : headers) head += key + ": " + value + "\r\n";
  send(head + "\r\n");
}

HttpResponse HttpConnection::request(const std::string& method, const std::string& target,
                                     const Headers& headers, const std::string& body) {
  Headers all = headers;
  bool carries = !body.empty() || method == "POST" || method == "PUT" || method == "PATCH";
  if (carries && !has(headers, "Content-Length") && !has(headers, "Transfer-Encoding"))
    all.emplace_back("Content-Length", std::to_string(body.size()));
  send_request_head(method, target, all);
  send(body);
  return read_response(method);
}

void HttpConnection::finish_sending() { ::shutdown(socket_.get(), SHUT_WR); }

bool HttpConnection::fill() {
  pollfd waiting{socket_.get(), POLLIN, 0};
  int ready = ::poll(&waiting, 1, static_cast<int>(timeout_sec_ * 1000));
  if (ready == 0) fail("nothing came for " + std::to_string(timeout_sec_) + " s");
  char bytes[65536];
  ssize_t n = ::recv(socket_.get(), bytes, sizeof bytes, 0);
  if (n < 0 && errno == ECONNRESET) return false;
  if (n < 0) fail_errno("cannot receive");
  buffer_.append(bytes, static_cast<size_t>(n));
  return n > 0;
}

std::string HttpConnection::take_line() {
  size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos)
    if (!fill()) fail("the connection ended inside a line: `" + buffer_ + "`");
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

std::string HttpConnection::take(size_t most) {
  std::string bytes = buffer_.substr(0, most);
  buffer_.erase(0, bytes.size());
  return bytes;
}

HttpResponse HttpConnection::read_head(const std::string& method) {
  HttpResponse head;
  do {
    std::string status_line = take_line();
    if (status_line.rfind("HTTP/1.", 0) != 0 || status_line.size() < 12)
      fail("not a status line: `" + status_line + "`");
    head.status = std::stoi(status_line.substr(9, 3));
    head.headers.clear();
    for (std::string line = take_line(); !line.empty(); line = take_line()) {
      size_t colon = line.find(':');
      if (colon == std::string::npos) fail("not a header: `" + line + "`");
      head.headers.emplace_back(line.substr(0, colon), trimmed(std::string_view(line).substr(colon + 1)));
    }
  } while (head.status == 100);
  start_body(method, head);
  return head;
}

void HttpConnection::start_body(const std::string& method, const HttpResponse& head) {
  line_buffer_.clear();
  left_ = 0;
  if (method == "HEAD" || head.status == 204 || head.status == 304 || head.status == 101) {
    body_ = Body::kNone;
  } else if (::strcasecmp(head.header("Transfer-Encoding").c_str(), "chunked") == 0) {
    body_ = Body::kChunked;
  } else if (has(head.headers, "Content-Length")) {
    body_ = Body::kLength;
    left_ = std::stoull(head.header("Content-Length"));
  } else {
    body_ = Body::kToEnd;
  }
}

bool HttpConnection::next_chunk() {
  std::string size = take_line();
  left_ = std::stoull(size, nullptr, 16);
  if (left_ > 0) return true;
  while (!take_line().empty()) {
  }
  body_ = Body::kNone;
  return false;
}

std::string HttpConnection::read_some() {
  if (body_ == Body::kNone || (body_ == Body::kLength && left_ == 0)) return {};
  if (body_ == Body::kChunked && left_ == 0 && !next_chunk()) return {};
  if (buffer_.empty() && !fill()) {
    if (body_ != Body::kToEnd) fail("the connection ended inside a body");
    body_ = Body::kNone;
    return {};
  }
  if (body_ == Body::kToEnd) return take(buffer_.size());
  std::string bytes = take(static_cast<size_t>(left_));
  left_ -= bytes.size();
  if (body_ == Body::kChunked && left_ == 0 && !take_line().empty()) fail("a chunk does not end in CRLF");
  return bytes;
}

std::string HttpConnection::read_line() {
  size_t end;
  while ((end = line_buffer_.find('\n')) == std::string::npos) {
    std::string bytes = read_some();
    if (bytes.empty()) return std::exchange(line_buffer_, {});
    line_buffer_ += bytes;
  }
  std::string line = line_buffer_.substr(0, end);
  line_buffer_.erase(0, end + 1);
  return line;
}

HttpResponse HttpConnection::read_response(const std::string& method) {
  HttpResponse response = read_head(method);
  for (std::string bytes = read_some(); !bytes.empty(); bytes = read_some()) response.body += bytes;
  return response;
}

std::string HttpConnection::read_until_closed() {
  while (fill()) {
  }
  return take(buffer_.size());
}

bool HttpConnection::closed_within(double seconds) {
  pollfd waiting{socket_.get(), POLLIN, 0};
  if (!buffer_.empty() || ::poll(&waiting, 1, static_cast<int>(seconds * 1000)) == 0) return false;
  char byte;
  ssize_t n = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN);
}

HttpResponse http_call(const std::string& url, const std::string& method, const std::string& target,
                       const Headers& headers, const std::string& body) {
  return HttpConnection(url).request(method, target, headers, body);
}

}  // namespace isogate::test
