#include "gateway/cli/http_client.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>

#include "lib/net/http.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectMost{30'000};
constexpr size_t kMaxBodyBytes = 1u << 30;
constexpr size_t kPiece = 65536;

// The caller's own failure, on its way through lib/net.
struct Failure {
  Error error;
};

using Write = std::function<void(std::string_view)>;

Error lost(const std::string& what) { return {ISOGATE_LOST, 0, what}; }

// The budgets notice it only while they wait.
bool is_cancelled(const CancelHandle* cancel) { return cancel != nullptr && cancel->cancelled(); }

Error cancelled() { return {ISOGATE_CANCELLED, 0, "cancelled"}; }

int cancel_fd(const CancelHandle* cancel) { return cancel == nullptr ? -1 : cancel->event()->get(); }

net::Budget silence(double most_sec, const CancelHandle* cancel) {
  constexpr double kLongestSec = 1e8;
  const auto most = static_cast<int64_t>(std::min(most_sec, kLongestSec) * 1e3);
  return net::Budget::of_each_wait(milliseconds(most), cancel_fd(cancel));
}

void write_body_of_fd(const HttpRequest& request, const Write& write) {
  const std::optional<uint64_t> expected = request.body_bytes;
  std::string piece(kPiece, '\0');
  uint64_t sent = 0;
  while (!expected || sent < *expected) {
    const size_t wanted = expected ? std::min<uint64_t>(kPiece, *expected - sent) : kPiece;
    const ssize_t n = ::read(request.body_fd, piece.data(), wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure{os_error("cannot read what is to be sent", errno)};
    if (n == 0 && expected) throw Failure{invalid("the file became shorter while it was sent")};
    if (n == 0) return;
    write({piece.data(), static_cast<size_t>(n)});
    sent += static_cast<uint64_t>(n);
    if (request.sent) request.sent(static_cast<uint64_t>(n));
  }
}

void write_body_of_writer(const HttpRequest& request, const Write& write) {
  std::exception_ptr stopped;
  const auto written = request.body_writer([&](std::string_view bytes) -> Result<void> {
    try {
      write(bytes);
    } catch (...) {
      stopped = std::current_exception();
      return lost("the gateway has stopped reading");
    }
    if (request.sent) request.sent(bytes.size());
    return {};
  });
  if (stopped) std::rethrow_exception(stopped);
  if (!written.ok()) throw Failure{written.error()};
}

net::HttpRequest request_of(const HttpRequest& request, const std::string& key) {
  net::HttpRequest sent{request.method, request.target, request.body, request.headers};
  if (!key.empty()) sent.headers.emplace_back("Authorization", "Bearer " + key);
  if (!request.content_type.empty()) sent.headers.emplace_back("Content-Type", request.content_type);
  if (request.body_writer) {
    sent.produce = [&request](const Write& write) { write_body_of_writer(request, write); };
  } else if (request.body_fd >= 0) {
    sent.produce = [&request](const Write& write) { write_body_of_fd(request, write); };
    sent.produced = request.body_bytes;
  }
  return sent;
}

net::HttpHead exchange(net::HttpConnection& connection, const HttpRequest& request,
                       const HttpClient& client) {
  const Endpoint& endpoint = client.endpoint();
  try {
    return connection.exchange(request_of(request, client.key()), silence(request.wait_sec, request.cancel));
  } catch (const net::NetError& error) {
    Error failure = endpoint.failure(error);
    if (failure.status == ISOGATE_LOST && !endpoint.tls && endpoint.unix_path.empty() &&
        connection.broken_off())
      failure.message += "; if it speaks TLS, write https:// and --ca-file";
    throw Failure{failure};
  }
}

bool marks_its_end(const std::string& content_type) {
  return content_type.starts_with("application/x-ndjson") || content_type.starts_with("text/event-stream");
}

// The body of an answer that is no refusal.
Result<void> pass_on(net::HttpConnection& connection, const BodySink& sink, const CancelHandle* cancel,
                     const net::Budget& budget) {
  std::string piece(kPiece, '\0');
  while (const size_t got = connection.read_body(piece.data(), piece.size(), budget)) {
    if (is_cancelled(cancel)) return cancelled();
    if (auto taken = sink(std::string_view(piece.data(), got)); !taken.ok()) return taken;
  }
  return {};
}

Result<HttpAnswer> read_answer(net::HttpConnection& connection, const net::HttpHead& head,
                               const HttpRequest& request, const BodySink& sink) {
  const net::Budget budget = silence(request.body_wait_sec.value_or(request.wait_sec), request.cancel);
  HttpAnswer answer{head.status, "", head.header("retry-after")};
  const std::string type = head.header("content-type");
  if (!sink || !answer.ok() || !type.starts_with(request.sink_type)) {
    answer.body = connection.read_body(kMaxBodyBytes, budget);
    return answer;
  }
  const bool is_framed = !head.header("content-length").empty() || !head.header("transfer-encoding").empty();
  if (!is_framed && !marks_its_end(type))
    return lost("the gateway's answer has no length, so that a cut could not be noticed");
  if (auto passed = pass_on(connection, sink, request.cancel, budget); !passed.ok()) return passed.error();
  return answer;
}

}  // namespace

void CancelHandle::cancel() {
  cancelled_ = true;
  if (event_) signal_event(event_->get());
}

HttpClient::HttpClient(Endpoint endpoint, std::string key)
    : endpoint_(std::move(endpoint)), key_(std::move(key)) {}

Result<HttpAnswer> HttpClient::call(const HttpRequest& request, const BodySink& sink) try {
  if (request.cancel != nullptr && !request.cancel->event()) return request.cancel->event().error();
  if (is_cancelled(request.cancel)) return cancelled();
  const net::Budget connecting(kConnectMost, cancel_fd(request.cancel));
  net::HttpConnection connection(net::Transport::connect(endpoint_.target(), connecting),
                                 endpoint_.host_field(), endpoint_.name());
  const net::HttpHead head = exchange(connection, request, *this);
  auto answer = read_answer(connection, head, request, sink);
  if (answer.ok()) answer->key_over_socket = !key_.empty() && !endpoint_.unix_path.empty();
  return answer;
} catch (const Failure& failure) {
  return failure.error;
} catch (const sdk::Error& error) {
  return endpoint_.failure(error);
}

std::string escape_path(std::string_view path) {
  std::string text;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    text += percent_encode(path.substr(begin, end - begin));
    if (end < path.size()) text += begin == end ? "%2F" : "/";
    begin = end + 1;
  }
  return text;
}

}  // namespace isogate::cli
