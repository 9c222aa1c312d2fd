// One HTTP call to a gateway, over any endpoint. Blocking; one thread per client.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/base/budgets.h"
#include "gateway/cli/endpoint.h"
#include "lib/error.h"
#include "lib/fd.h"

namespace isogate::cli {

// How long a gateway may take over a call, beside what an exec itself takes: it may have to open a sandbox,
// or to remove a large tree. Longer than it waits itself, so that it gives the reason.
inline constexpr double kAnswerSec = (budget::kOpen + std::chrono::seconds(60)).count();

// Takes bytes piece by piece; an error ends their source with that error.
using BodySink = std::function<Result<void>(std::string_view)>;

// Ends a call from another thread: the gateway sees the client disconnect. Any thread; outlives its call.
class CancelHandle {
 public:
  void cancel();  // also a call that begins later
  [[nodiscard]] bool cancelled() const { return cancelled_; }
  [[nodiscard]] const Result<Fd>& event() const { return event_; }  // readable once cancelled

 private:
  const Result<Fd> event_ = make_event();
  std::atomic<bool> cancelled_{false};
};

struct HttpRequest {
  std::string method, target;
  std::string content_type;  // with a body
  std::string body;
  int body_fd = -1;                    // read to its end, in place of `body`
  std::optional<uint64_t> body_bytes;  // what body_fd brings, when that is known
  // Supplies the body, in place of `body` and body_fd. Its error ends the call: the gateway sees a
  // truncated body.
  std::function<Result<void>(const BodySink&)> body_writer;
  std::function<void(uint64_t)> sent;  // called with the size of each piece of what these two bring
  std::vector<std::pair<std::string, std::string>> headers;
  double wait_sec = kAnswerSec;         // how long the gateway may send nothing, or read nothing
  std::optional<double> body_wait_sec;  // the same once the head of the answer has come, if it is another
  std::string sink_type;                // the sink takes a body of this Content-Type alone; empty: of any
  CancelHandle* cancel = nullptr;
};

struct HttpAnswer {
  int status = 0;
  std::string body;  // what did not go to the sink
  std::string retry_after;
  bool key_over_socket = false;  // a key went over a Unix socket, which asks for none
  [[nodiscard]] bool ok() const { return status >= 200 && status < 300; }
};

class HttpClient {
 public:
  HttpClient(Endpoint endpoint, std::string key);

  // ISOGATE_UNAVAILABLE: no connection, or one side's certificate was refused, so nothing was done.
  // ISOGATE_INVALID_ARGUMENT: a file of TLS cannot be used. ISOGATE_LOST: contact ended later, or the
  // response is cut short. ISOGATE_CANCELLED. A refusal is not an error. The sink takes the body of any other
  // response. With a sink, a response whose end cannot be distinguished from a cut is refused, unless it is a
  // stream of events, which marks its end itself.
  Result<HttpAnswer> call(const HttpRequest& request, const BodySink& sink = {});

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] const std::string& key() const { return key_; }  // a secret; empty: none

 private:
  Endpoint endpoint_;
  std::string key_;
};

// Everything but unreserved characters and single inner slashes as %XX.
std::string escape_path(std::string_view path);

}  // namespace isogate::cli
