// One request and its answer, as a handler sees them. The connection implements it (connection.cc), so
// that handlers know neither Beast nor sockets. Everything runs on the front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/front/base/api_error.h"
#include "gateway/front/base/byte_budget.h"
#include "gateway/front/base/killer.h"
#include "gateway/front/http/auth.h"
#include "gateway/front/http/request_head.h"
#include "gateway/front/http/websocket.h"

namespace isogate::front {

struct Route;  // api/router.h's; here it is only carried

template <typename T>
using Task = boost::asio::awaitable<T>;

using PipeEnd = boost::asio::posix::stream_descriptor;

struct PipeClosed {};

// A key in addition to `Authorization`, which is then the program's: only in requests to ports of
// sandboxes.
inline constexpr std::string_view kKeyHeader = "X-Isogate-Key";

using Headers = std::vector<std::pair<std::string_view, std::string>>;

class Exchange {
 public:
  virtual ~Exchange() = default;

  const Route* route = nullptr;  // null until one is found
  std::string request_id;
  Principal principal;
  std::vector<std::string> certificate_names;  // of a verified client certificate: "DNS:…", "URI:…", …
  std::string cors_origin;                     // of a listed page, which may read the answer; else empty
  std::string agent_param;                     // {agent_id} of the path, or {sandbox_id}; decoded
  mutable std::string agent;                   // whom the call is for, once that is known; for the log
  std::string_view error_code;                 // of an answer that is or ends with an error; for the log
  std::string fault;                           // why, if it is one (is_fault()); for the log
  std::string path_param;                      // {path} or {port}, decoded
  std::string_view query;                      // after '?', raw
  ByteShare memory;                            // of bodies and responses that it keeps, until it is answered
  // Kills once a reload no longer admits its caller. A call that runs goes on; who is registered here ends.
  Killer unadmitted;
  // Of a call that takes or sends without end: it is aborted then, or at once if that has happened.
  void end_once_unadmitted() {
    lasting_.emplace(unadmitted, [this] { abort(); });
  }

  // Before what it begins: throws ApiError once its caller is no longer admitted.
  void check_admitted() const {
    if (unadmitted.killed()) throw ApiError{.code = Code::kUnauthenticated, .message = kNoLongerAdmitted};
  }

  // For the log: what its client gets, or would get if its answer had not begun. The first fault counts.
  void note(const ApiError& error) {
    if (!fault.empty()) return;
    error_code = error.code_text();
    if (error.is_fault()) fault = error.fault();
  }

  // Empty when absent. Names are compared without case.
  [[nodiscard]] virtual std::string_view header(std::string_view name) const = 0;
  // Also true for an empty one.
  [[nodiscard]] virtual bool has_header(std::string_view name) const = 0;

  // The request as received.
  [[nodiscard]] virtual std::string_view method() const = 0;
  [[nodiscard]] virtual std::string_view target() const = 0;
  virtual void each_header(
      const std::function<void(std::string_view name, std::string_view value)>& take) const = 0;
  [[nodiscard]] virtual BodyFraming body() const = 0;

  // The whole body, at most `cap` bytes (else ApiError file_too_large), held in `memory`. Once.
  virtual Task<std::string> read_body(uint64_t cap) = 0;
  // Further bytes of the body, at least one; 0 at the body's complete end. Throws ApiError when the body is
  // cut short. May run while a response is written.
  virtual Task<size_t> read_body_some(char* data, size_t size) = 0;
  // Further bytes of the body into the pipe; 0 at the body's complete end. Throws ApiError when the body is
  // cut short, and PipeClosed when the pipe has no reader.
  virtual Task<size_t> read_body_to_pipe(PipeEnd& pipe) = 0;
  // Stops reading it: a waiting read_body_some() throws ClientGone, and the connection closes.
  virtual void stop_reading() = 0;

  // A whole answer. Once, and nothing after it.
  virtual Task<void> send(unsigned status, std::string_view content_type, std::string_view body,
                          const Headers& headers = {}) = 0;

  // A response in pieces. Without a length it is chunked. write() returns when the kernel has taken
  // the bytes, so that a slow reader slows its producer; it throws once the client has disconnected.
  virtual Task<void> begin(unsigned status, std::string_view content_type, std::optional<uint64_t> length,
                           const Headers& headers = {}) = 0;
  virtual Task<void> write(std::string_view bytes) = 0;
  // begin() of one whose pieces come while things happen: no proxy may hold them back, and it ends once its
  // caller is no longer admitted.
  Task<void> begin_stream(std::string_view content_type, const Headers& headers = {}) {
    end_once_unadmitted();
    Headers all(headers);
    all.emplace_back("X-Accel-Buffering", "no");
    co_await begin(200, content_type, std::nullopt, all);
  }
  // Moves up to `size` bytes from a pipe; returns how many, 0 at the end of the pipe. Needs a length.
  virtual Task<size_t> write_from_pipe(PipeEnd& pipe, size_t size) = 0;
  // Completes the answer. Left out, the connection closes and the client sees a cut.
  virtual Task<void> finish() = 0;
  [[nodiscard]] virtual bool begun() const = 0;

  // Switches to a WebSocket; no other response follows. A message of over `most_message` bytes closes it.
  // Throws ApiError invalid_request when the request asks for no WebSocket, and ClientGone.
  virtual Task<std::unique_ptr<WebSocket>> upgrade(size_t most_message) = 0;

  // As begin(), for a program's response: with its reason and headers, and only X-Request-Id of
  // ours. `bodiless`: there is no body, whatever the headers say.
  virtual Task<void> begin_proxied(unsigned status, std::string_view reason, std::optional<uint64_t> length,
                                   bool bodiless, const Headers& headers) = 0;
  // 101: from here on write() and read_switched() pass bytes without a framing. read_switched(): 0 at the end
  // of the client's direction. end_writing() ends the other one.
  virtual Task<void> switch_protocols(const Headers& headers) = 0;
  virtual Task<size_t> read_switched(char* data, size_t size) = 0;
  virtual Task<void> end_writing() = 0;
  // Ends both directions at once, as if the client had left: it sees a reset, never the end of whole output.
  virtual void abort() = 0;
  // Both directions have ended.
  [[nodiscard]] virtual bool closed() const = 0;

  // Delays the answer to who was refused with 429 and calls again at once (refusal_pace.h). For a refusal
  // inside an answer with another status; an ApiError does it by itself.
  virtual Task<void> hold_back() = 0;

  // Adds bytes of a WebSocket's messages to its access log line.
  virtual void count_bytes(uint64_t from_client, uint64_t to_client) = 0;

  // Kills once the client has closed its side; the exchange watches for that from here on. Belongs to the
  // exchange, until the request is answered.
  virtual Killer& watch_client() = 0;

 private:
  std::optional<OnKill> lasting_;
};

}  // namespace isogate::front
