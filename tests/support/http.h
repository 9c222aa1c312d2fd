// A small HTTP/1.1 client for tests, on plain sockets: keep-alive, chunked bodies, and raw bytes if a test
// wants to break the rules. Failures and timeouts throw std::runtime_error. One thread per connection.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/fd.h"

namespace isogate::test {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 0;
  Headers headers;
  std::string body;
  [[nodiscard]] std::string header(std::string_view name) const;  // case-insensitive; empty: absent
};

class HttpConnection {
 public:
  // "http://127.0.0.1:9090", "http://[::1]:9090" or "unix:/path/to.sock". The timeout applies to each wait.
  explicit HttpConnection(const std::string& url, double timeout_sec = 120);

  // Sends Host, Content-Length (for a body, and for POST, PUT and PATCH) and `headers`, which win over these
  // two; reads the whole response.
  HttpResponse request(const std::string& method, const std::string& target, const Headers& headers = {},
                       const std::string& body = {});

  // The same in pieces.
  void send(std::string_view bytes);
  void send_request_head(const std::string& method, const std::string& target, const Headers& headers);
  void finish_sending();                                          // shutdown(SHUT_WR)
  HttpResponse read_response(const std::string& method = "GET");  // 100 Continue is skipped
  HttpResponse read_head(const std::string& method = "GET");      // the body stays to be read
  // Some bytes of the body, without chunk framing; empty: the body is complete. An end of the connection
  // inside a body throws.
  std::string read_some();
  std::string read_line();  // a line of the body without its newline; empty at the end of the body

  std::string read_until_closed();     // raw bytes to the end of the connection
  bool closed_within(double seconds);  // only the end arrives, within that time
  [[nodiscard]] int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }

 private:
  bool fill();  // false: end of the connection
  std::string take_line();
  std::string take(size_t most);
  void start_body(const std::string& method, const HttpResponse& head);
  bool next_chunk();

  enum class Body { kNone, kLength, kChunked, kToEnd };
  Fd socket_;
  std::string host_;
  double timeout_sec_;
  std::string buffer_, line_buffer_;
  Body body_ = Body::kNone;
  unsigned long long left_ = 0;
};

// One call on a connection of its own.
HttpResponse http_call(const std::string& url, const std::string& method, const std::string& target,
                       const Headers& headers = {}, const std::string& body = {});

}  // namespace isogate::test
