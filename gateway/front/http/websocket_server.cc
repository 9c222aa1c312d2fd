#include "gateway/front/http/websocket_server.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <utility>

#include "gateway/front/base/alarm.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/base/killer.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace beast = boost::beast;

// What Beast does with the stream below a WebSocket that has ended: the connection closes it.
void teardown(beast::role_type, ClientStream&, boost::system::error_code& error) { error = {}; }

template <typename Handler>
void async_teardown(beast::role_type, ClientStream& stream, Handler&& handler) {
  asio::post(stream.get_executor(),
             beast::bind_front_handler(std::forward<Handler>(handler), boost::system::error_code()));
}

void beast_close_socket(ClientStream& stream) {
  boost::system::error_code ignored;
  stream.socket().close(ignored);
}

namespace {

constexpr std::chrono::seconds kCloseWithin{2};
constexpr size_t kMostReason = 120;  // of a close frame

class ServerSide final : public WebSocket {
 public:
  ServerSide(ClientStream& stream, size_t most_message, std::function<void(bool)> writing)
      : lower_(stream), stream_(stream), writing_(std::move(writing)) {
    stream_.set_option(beast::websocket::stream_base::timeout{beast::websocket::stream_base::none(),
                                                              beast::websocket::stream_base::none(), false});
    stream_.read_message_max(most_message);
    stream_.auto_fragment(false);
  }

  asio::awaitable<bool> accept(const beast::http::request<beast::http::buffer_body>& head,
                               std::string request_id) {
    stream_.set_option(beast::websocket::stream_base::decorator(
        [id = std::move(request_id)](beast::websocket::response_type& to) {
          to.set("X-Request-Id", id);
          to.set(beast::http::field::server, "isogate");
        }));
    boost::system::error_code error;
    writing_(true);
    co_await stream_.async_accept(head, asio::redirect_error(asio::use_awaitable, error));
    writing_(false);
    co_return !error;
  }

  asio::awaitable<std::optional<Message>> read() override {
    boost::system::error_code error;
    beast::flat_buffer buffer;
    co_await stream_.async_read(buffer, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return std::nullopt;
    const auto data = buffer.cdata();
    co_return Message{stream_.got_text(), std::string(static_cast<const char*>(data.data()), data.size())};
  }

  asio::awaitable<void> write(bool text, std::string_view bytes) override {
    boost::system::error_code error;
    stream_.text(text);
    writing_(true);
    co_await stream_.async_write(asio::buffer(bytes.data(), bytes.size()),
                                 asio::redirect_error(asio::use_awaitable, error));
    writing_(false);
    if (error) throw ClientGone{};
  }

  asio::awaitable<void> close(uint16_t code, std::string_view reason) override {
    boost::system::error_code ignored;
    Alarm patience(stream_.get_executor());
    patience.set(kCloseWithin, [this] { abort(); });
    const std::string text = printable(reason, kMostReason);
    const std::string_view shown = utf8_prefix(text, kMostReason);
    const beast::websocket::close_reason why(static_cast<beast::websocket::close_code>(code),
                                             beast::string_view(shown.data(), shown.size()));
    co_await stream_.async_close(why, asio::redirect_error(asio::use_awaitable, ignored));
  }

  void abort() override {
    boost::system::error_code ignored;
    lower_.socket().close(ignored);
  }

 private:
  ClientStream& lower_;
  beast::websocket::stream<ClientStream&, false> stream_;  // false: messages are never compressed
  std::function<void(bool)> writing_;
};

}  // namespace

asio::awaitable<std::unique_ptr<WebSocket>> accept_websocket(
    ClientStream& stream, const beast::http::request<beast::http::buffer_body>& head, size_t most_message,
    std::string request_id, std::function<void(bool)> writing) {
  constexpr size_t kKeySize = 24;  // of 16 bytes in base64
  if (!beast::websocket::is_upgrade(head) || head[beast::http::field::sec_websocket_version] != "13" ||
      head[beast::http::field::sec_websocket_key].size() != kKeySize) {
    ApiError refusal = invalid_request(
        "this call is a WebSocket: send Connection: Upgrade, Upgrade: websocket, "
        "Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key");
    refusal.header = {"Sec-WebSocket-Version", "13"};
    throw refusal;
  }
  auto made = std::make_unique<ServerSide>(stream, most_message, std::move(writing));
  if (!co_await made->accept(head, std::move(request_id))) co_return nullptr;
  co_return std::move(made);
}

}  // namespace isogate::front
