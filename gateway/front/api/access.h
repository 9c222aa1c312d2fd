// Who makes this request, and for which agent: the key, the Unix peer, or the one relaxation.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "gateway/front/app.h"
#include "gateway/front/http/exchange.h"
#include "gateway/front/http/server.h"

namespace isogate::front {

// "127.0.0.1:9090" and "[::1]:9090" in their parts.
BoundAddress bound_address(std::string_view listener);

// Sets exchange.principal or throws ApiError. The metrics listener needs no principal. `peer_uid` is -1
// unless the listener is a Unix socket. With a principal there it asks again, after a reload: that counts no
// wrong key.
void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, int peer_uid,
                  const std::string& peer);

// Whose key it is. Throws ApiError.
Principal by_key(App& app, const Exchange& exchange, const ListenerInfo& listener, std::string_view key,
                 const std::string& peer);
// Throws ApiError: unauthenticated, or rate_limited after many wrong ones of this peer.
[[noreturn]] void refuse_key(App& app, const std::string& peer, const std::string& message);
[[nodiscard]] ApiError too_many_wrong_keys(std::chrono::seconds wait);

// The agent of a request. Body, path, X-Agent-Id and env.AGENT_ID must agree, or it is invalid_request.
// If none names an agent it is `default`, except under `multi_agent`. Sets exchange.agent.
std::string agent_of(const Exchange& exchange, bool multi_agent,
                     const std::optional<std::string>& in_body = std::nullopt,
                     const std::optional<std::string>& in_env = std::nullopt);

}  // namespace isogate::front
