// The listeners and their connections: accepts them, and closes those past their deadlines. The
// front's one thread.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gateway/base/tls_context.h"
#include "gateway/config/config.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/http/exchange.h"
#include "gateway/front/http/refusal_pace.h"
#include "lib/fd.h"

namespace isogate::front {

class Connection;

struct ListenerInfo {
  std::string address;  // as configured: HOST:PORT or unix:/PATH
  bool unix_socket = false;
  ListenerKind kind = ListenerKind::kNative;
};

// How a request went, for the log and the metrics.
struct RequestEnd {
  using Time = std::chrono::steady_clock::time_point;
  unsigned status = 0;                   // 0: the client disconnected before the response
  uint64_t bytes_in = 0, bytes_out = 0;  // of the bodies
  bool complete = false;                 // the whole answer was handed to the kernel
  std::string_view refused;              // why there was no request at all, else empty
  // First byte, end of the head, first and last byte of the answer.
  Time began{}, asked{}, answered{}, ended{};
};

// What the server needs from the rest of the front.
struct ServerHooks {
  // Sets exchange.cors_origin, before anything is answered.
  std::function<void(Exchange&)> look_at_origin;
  // Fills in exchange.route and what the target holds, or throws ApiError.
  std::function<void(Exchange&, const ListenerInfo&)> route;
  // Fills exchange.principal or throws ApiError. With one filled in it asks again, and no key counts as a
  // guess.
  std::function<void(Exchange&, const ListenerInfo&, int peer_uid, const std::string& peer)> authenticate;
  std::function<Task<void>(Exchange&)> handle;
  // The status and the JSON of a refusal, in the form of the listener.
  std::function<std::pair<unsigned, std::string>(const Exchange&, const ListenerInfo&, const ApiError&)>
      refusal;
  // One line of the log and the metrics, after the answer.
  std::function<void(const Exchange&, const std::string& peer, const RequestEnd&)> finished;
  // Whether a line that a peer provoked is written to the log.
  std::function<bool(const std::string& peer, std::string_view event)> admit_line;
  std::function<void()> swept;  // several times a second
  // A connection that was not admitted, by the setting that limits them.
  std::function<void(std::string_view limit)> connection_refused;
};

class Server {
 public:
  // Of connections the limits are those that are admitted, not what is configured.
  Server(boost::asio::io_context& io, LimitsConfig limits, ServerHooks hooks);
  ~Server();

  // For connections and requests from now on: a request under way keeps what it has. A connection that waits
  // for its next request waits `idle_timeout_sec` from now.
  void set_limits(LimitsConfig limits);
  // For connections accepted from now on, Unix sockets and `metrics.listen` excepted; those that are open
  // keep what they have. A null context: plain HTTP.
  void set_tls(TlsContext context, std::chrono::seconds handshake_within);
  // Other authorities are trusted now: earlier certificates of open connections no longer count.
  void forget_certificates();

  // Of requests under way that would be refused now, or be of another tenant: kills `unadmitted`, and ends
  // those whose body is still to come.
  void end_unadmitted();

  // `socket` is bound, listening and non-blocking.
  void listen(Fd socket, ListenerInfo info);

  // From here on every connection closes after its answer; new ones are still accepted.
  void drain();
  void close_all();

  [[nodiscard]] size_t busy() const;  // connections with a request under way
  [[nodiscard]] size_t connections() const { return connections_.size(); }

 private:
  friend class Connection;
  struct Listener;

  [[nodiscard]] TlsContext tls_for(const ListenerInfo& listener) const;
  Task<void> accept_loop(Listener& listener);
  // Empty, or why it cannot be served; it is closed then.
  std::string admit(boost::asio::generic::stream_protocol::socket socket, const ListenerInfo& info);
  struct Refusal {
    std::string_view limit;  // the name of its setting
    std::string why;
  };
  [[nodiscard]] std::optional<Refusal> refusal(const std::string& peer, const ListenerInfo& info) const;
  Task<void> sweep_loop();
  void sweep();

  boost::asio::io_context& io_;
  LimitsConfig limits_;
  ServerHooks hooks_;
  TlsContext tls_;
  std::chrono::seconds handshake_within_{};
  uint64_t authorities_ = 0;  // how often the trusted authorities changed
  bool draining_ = false;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::unordered_set<Connection*> connections_;
  std::unordered_map<std::string, uint32_t> peers_;  // by peer_key(): connections
  RefusalPace refusals_;
  boost::asio::steady_timer sweeper_;
};

}  // namespace isogate::front
