// The server's side of a WebSocket on a client's connection. Included by connection.cc alone (Beast).
#pragma once

#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/message.hpp>
#include <functional>
#include <memory>
#include <string>

#include "gateway/front/http/client_stream.h"
#include "gateway/front/http/websocket.h"

namespace isogate::front {

// Answers the handshake. `stream` is borrowed. `writing` is called before (true) and after each write.
// Null: the client has disconnected. Throws ApiError invalid_request when the head asks for no WebSocket.
boost::asio::awaitable<std::unique_ptr<WebSocket>> accept_websocket(
    ClientStream& stream, const boost::beast::http::request<boost::beast::http::buffer_body>& head,
    size_t most_message, std::string request_id, std::function<void(bool)> writing);

}  // namespace isogate::front
