#include <array>
#include <boost/asio/co_spawn.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gateway/front/api/access.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/app.h"
#include "gateway/front/base/alarm.h"
#include "gateway/front/base/changes.h"
#include "gateway/front/http/http_text.h"
#include "gateway/front/sandboxes/port_connection.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr size_t kPortPart = 65536;          // of the port's bytes, in one message
constexpr size_t kMostMessage = 256 * 1024;  // of a client

constexpr std::string_view kPortMessageFields[] = {"type"};

uint16_t port_in(const std::string& text) {
  const uint16_t port = number_in<uint16_t>(text).value_or(0);
  if (port == 0) throw invalid_request("the port must be 1 to 65535: not `" + printable(text, 40) + "`");
  return port;
}

// A client's WebSocket on a connection to a port.
class Passage {
 public:
  Passage(PortConnection& port, WebSocket& socket, bool half_close, const asio::any_io_executor& executor)
      : executor_(executor),
        port_(port),
        socket_(socket),
        half_close_(half_close),
        changes_(executor),
        patience_(executor) {}

  // Until the client has closed it, or the connection has ended.
  Task<void> run() {
    asio::co_spawn(executor_, take_input(), [this](const std::exception_ptr&) {
      input_read_ = true;
      changes_.notify();
    });
    port_.on_cut([this] {
      if (writing_) socket_.abort();  // to a client that may read nothing
    });
    try {
      co_await send_output();
    } catch (const PortBroken& broken) {
      end(broken.cut ? WebSocket::kGoingAway : WebSocket::kFailed, broken.why);
    } catch (...) {
      gone_ = true;
    }
    port_.on_cut({});
    if (gone_) {
      socket_.abort();  // ends its read, too
      client_is_gone();
      co_await changes_.until([this] { return input_read_; });
    }
    if (client_left_) co_await pass_the_rest();
    if (!gone_ && !client_left_) co_await socket_.close(code_, reason_);
    socket_.abort();
    port_.cut("its client has closed it");
    co_await changes_.until([this] { return input_read_; });
  }

  void end_unadmitted() {
    end(WebSocket::kPolicy, kNoLongerAdmitted);
    port_.cut(kNoLongerAdmitted);
  }

  // Also while nobody reads of it, since the program takes nothing.
  void client_is_gone() {
    patience_.set(kPortPassWithin, [this] { port_.cut("its client has disconnected"); });
  }

 private:
  void end(uint16_t code, const std::string& why) {
    if (code_ != WebSocket::kNormal) return;
    code_ = code;
    reason_ = why;
  }

  Task<void> send(bool text, std::string_view bytes) {
    writing_ = true;
    co_await socket_.write(text, bytes);
    writing_ = false;
  }

  Task<void> send_output() {
    const auto bytes = std::make_unique<std::array<char, kPortPart>>();
    for (;;) {
      const size_t n = co_await port_.read_some(bytes->data(), bytes->size());
      if (client_left_) co_return;
      if (n == 0) break;
      co_await send(false, {bytes->data(), n});
    }
    if (!half_close_) co_return;
    co_await send(true, R"({"event":"end"})");
    co_await port_.ended();
  }

  // What the client sent before it left still reaches the port.
  Task<void> pass_the_rest() {
    const auto bytes = std::make_unique<std::array<char, kPortPart>>();
    try {
      while (co_await port_.read_some(bytes->data(), bytes->size()) > 0) {
      }
      co_await port_.ended();
    } catch (const PortBroken&) {
    }
  }

  // What the port does not take yet is not read from the client either.
  Task<void> take_input() {
    try {
      for (;;) {
        const std::optional<WebSocket::Message> message = co_await socket_.read();
        if (!message) break;
        if (message->text) {
          obey(message->bytes);
        } else if (input_ended_) {
          throw invalid_request("bytes after the end");
        } else if (!co_await port_.write(message->bytes)) {
          continue;  // the reader learns why
        }
      }
      client_left_ = true;
      patience_.set(kPortPassWithin, [this] { port_.cut("its client has closed it"); });
    } catch (const ApiError& error) {
      end(WebSocket::kBadData, error.message);
      port_.cut(error.message);
    } catch (const PortBroken&) {
    }
    port_.end_writing();
  }

  void obey(const std::string& text) {
    if (!half_close_) throw invalid_request("a text message is allowed only with half_close=true");
    const auto message = parse_body(text, kPortMessageFields);
    if (text_field(message, "type").value_or("") != "end") throw invalid_request("`type` must be end");
    input_ended_ = true;
    port_.end_writing();
  }

  const asio::any_io_executor& executor_;
  PortConnection& port_;
  WebSocket& socket_;
  const bool half_close_;
  Changes changes_;
  Alarm patience_;
  bool input_read_ = false;   // nothing more is read of the client: its coroutine has ended
  bool input_ended_ = false;  // it said so, and goes on reading
  bool client_left_ = false;
  bool writing_ = false, gone_ = false;
  uint16_t code_ = WebSocket::kNormal;
  std::string reason_;
};

Task<void> handle_connect(App& app, Exchange& exchange) {
  const bool half_close = query_flag(exchange.query, "half_close");
  PortTarget target{.tenant = exchange.principal.tenant,
                    .agent = agent_of(exchange, app.config.multi_agent),
                    .request_id = exchange.request_id,
                    .port = port_in(exchange.path_param)};
  if (!equal_no_case(exchange.header("Upgrade"), "websocket"))
    throw invalid_request("this call is a WebSocket: send Connection: Upgrade and Upgrade: websocket");
  if (app.draining) throw draining();
  exchange.memory.hold(kPortPart + kMostMessage);
  Killer& client = exchange.watch_client();
  const auto port = co_await PortConnection::open(app.sandboxes, app.backends, std::move(target),
                                                  app.config.ports.max_per_sandbox, client);
  if (app.draining) throw draining();
  const auto socket = co_await exchange.upgrade(kMostMessage);
  Passage passage(*port, *socket, half_close, app.executor);
  const OnKill on_kill(client, [&passage] { passage.client_is_gone(); });
  const OnKill on_removal(exchange.unadmitted, [&passage] { passage.end_unadmitted(); });
  co_await passage.run();
  exchange.count_bytes(port->sent(), port->received());
  app.metrics.port_ended(port->backend(), port->sent(), port->received());
}

constexpr std::string_view kConnectParameters[] = {"half_close"};

constexpr Route kPortRoutes[] = {
    {"GET", "/sandboxes/{agent_id}/ports/{port}", "connectPort", handle_connect, {}, kConnectParameters},
};

}  // namespace

std::span<const Route> port_routes() { return kPortRoutes; }

}  // namespace isogate::front
