// One HTTP/1.1 connection to a server, by Poco, with what Poco 1.11 does not have: a deadline and a
// cancellation for the whole call, and the difference between a response that ended and one that broke off.
// One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/net/transport.h"

namespace isogate::net {

struct HttpRequest {
  std::string method, target;  // "GET", "/version"
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // checked: no control characters
  // Gives the body piece by piece, in place of `body`. When it throws the request is broken off and the
  // connection dead.
  std::function<void(const std::function<void(std::string_view)>&)> produce = {};
  std::optional<uint64_t> produced = std::nullopt;  // the bytes that it gives, if they are known
};

struct HttpHead {
  int status = 0;
  // By name in lower case; of those that occur twice the last, but lengths that differ are refused.
  std::map<std::string, std::string> headers;
  [[nodiscard]] std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

// Every function throws a NetError with the reason, or an exception of `produce`. The connection is then
// dead. broken_off(): an end, not lateness or cancellation.
class HttpConnection {
 public:
  // `host`: the header's. `name`: of the server in messages, "the Engine".
  HttpConnection(std::unique_ptr<Transport> transport, std::string host, std::string name);
  ~HttpConnection();

  // Sends it and reads the answer's head. The body of the last answer has been read to its end. A server may
  // stop reading before the end of the request to refuse it, but not to report success.
  HttpHead exchange(const HttpRequest& request, const Budget& budget);
  // The next piece of the answer's body; 0 at its end, which is whole.
  size_t read_body(char* to, size_t size, const Budget& budget);
  // All of it. More than `most` bytes are an error.
  std::string read_body(size_t most, const Budget& budget);
  // The same for people: of more than `most` bytes the first ones, and the connection is not used again.
  std::string read_reason(size_t most, const Budget& budget);

  [[nodiscard]] bool reusable();          // the last answer was read to its end, and another may follow
  [[nodiscard]] bool answered() const;    // a byte of an answer has come since the last request
  [[nodiscard]] bool broken_off() const;  // the other side has closed
  // The connection after a response's head, and the bytes that arrived already.
  std::unique_ptr<Transport> detach(std::string& early);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The lines of an answer that goes on, as they come. One thread at a time.
class HttpLines {
 public:
  // `connection`: the answer's head has been read. `too_long`: the error of a line of more than `most` bytes.
  HttpLines(std::unique_ptr<HttpConnection> connection, size_t most, std::string too_long)
      : connection_(std::move(connection)), most_(most), too_long_(std::move(too_long)) {}
  // The next one without its end; nothing when the answer has ended. Throws NetError.
  std::optional<std::string> next(const Budget& budget);

 private:
  const std::unique_ptr<HttpConnection> connection_;
  const size_t most_;
  const std::string too_long_;
  std::string pending_;
  size_t searched_ = 0;  // so much of `pending_` has no end of a line
};

}  // namespace isogate::net
