#include "gateway/front/access.h"

#include <charconv>

#include "gateway/base/log.h"
#include "gateway/front/http_text.h"
#include "gateway/front/router.h"

namespace isogate::front {
namespace {

std::optional<std::string_view> optional_header(const Exchange& exchange, std::string_view name) {
  const auto value = exchange.header(name);
  if (value.empty()) return std::nullopt;
  return value;
}

// DNS names have no case, addresses several spellings; URIs and mail addresses are compared as they are.
bool same_name(std::string_view configured, std::string_view shown) {
  if (configured.starts_with("DNS:")) return equal_no_case(configured, shown);
  if (!configured.starts_with("IP:")) return configured == shown;
  return shown.starts_with("IP:") && same_address(configured.substr(3), shown.substr(3));
}

bool is_loopback(std::string_view ip) { return ip.starts_with("127.") || ip == "::1"; }

Principal by_key(App& app, std::string_view authorization, const std::string& peer) {
  const auto token = bearer_token(authorization);
  if (token) {
    if (auto principal = app.authenticator.by_key(*token)) return std::move(*principal);
  }
  const auto wait = app.wrong_keys.wrong(peer, std::chrono::steady_clock::now());
  if (app.peer_lines.admit(peer, "key_refused", std::chrono::steady_clock::now()))
    log::warn("key_refused", {{"peer", peer}});
  if (wait) {
    throw ApiError{.code = Code::kRateLimited,
                   .message = "too many wrong keys from this address",
                   .retry_after_sec = static_cast<unsigned>(wait->count())};
  }
  throw ApiError{.code = Code::kUnauthenticated,
                 .message = "this key is not known; send `Authorization: Bearer KEY`"};
}

// A browser sends its client certificate with whatever a page asks for, so the page has to be a listed one.
std::optional<Principal> by_certificate(const App& app, const Exchange& exchange) {
  const TlsClientConfig* client = client_of(app.config.tls.clients, exchange.certificate_names);
  if (client == nullptr) return std::nullopt;
  if (!origin_allowed(optional_header(exchange, "Origin"), optional_header(exchange, "Sec-Fetch-Site"),
                      app.config.cors.origins)) {
    throw ApiError{.code = Code::kPermissionDenied,
                   .message = "requests from web pages need a key, or their origin in `cors.origins`"};
  }
  return Principal{client->tenant, client->name};
}

// Who connected is a proxy, and somebody else asks.
void refuse_forwarded(const Exchange& exchange) {
  if (!exchange.forwarded()) return;
  throw ApiError{
      .code = Code::kUnauthenticated,
      .message = "a proxy sent this request on, so it needs a key: send `Authorization: Bearer KEY`"};
}

// anonymous: loopback, under its conditions.
std::optional<Principal> by_loopback(const App& app, const Exchange& exchange, const ListenerInfo& listener,
                                     const std::string& peer) {
  auto principal = app.authenticator.by_loopback();
  const BoundAddress bound = bound_address(listener.address);
  if (!principal || !is_loopback(bound.ip) || !is_loopback(peer)) return std::nullopt;
  refuse_forwarded(exchange);
  if (!host_allowed(exchange.header("Host"), bound, app.config.hosts)) {
    throw ApiError{.code = Code::kMisdirectedRequest,
                   .message = "this Host is not served without a key; add it to `hosts`"};
  }
  if (!origin_allowed(optional_header(exchange, "Origin"), optional_header(exchange, "Sec-Fetch-Site"),
                      app.config.cors.origins)) {
    throw ApiError{.code = Code::kPermissionDenied,
                   .message = "requests from web pages need a key, or their origin in `cors.origins`"};
  }
  return principal;
}

void only_metrics(const Exchange& exchange) {
  if (exchange.route == Route::kMetrics || !row_of(exchange.route).needs_key) return;
  throw ApiError{.code = Code::kNotFound,
                 .message = "this listener serves /metrics, /livez, /readyz and /healthz alone"};
}

}  // namespace

BoundAddress bound_address(std::string_view listener) {
  BoundAddress bound;
  const size_t colon = listener.rfind(':');
  std::string_view ip = listener.substr(0, colon);
  if (ip.starts_with('[') && ip.ends_with(']')) ip = ip.substr(1, ip.size() - 2);
  bound.ip = ip;
  const std::string_view port =
      colon == std::string_view::npos ? std::string_view{} : listener.substr(colon + 1);
  std::from_chars(port.data(), port.data() + port.size(), bound.port);
  return bound;
}

Authenticator::Options authenticator_options(const Config& config, const std::string& local_key_sha256,
                                             const std::vector<uint32_t>& peer_uids) {
  return {.keys = config.keys,
          .local_key_sha256 = local_key_sha256,
          .peer_uids = peer_uids,
          .anonymous_loopback = config.anonymous == "loopback" && !config.require_remote};
}

const TlsClientConfig* client_of(const std::vector<TlsClientConfig>& clients,
                                 const std::vector<std::string>& names) {
  for (const TlsClientConfig& client : clients)
    for (const std::string& name : names)
      if (same_name(client.san, name)) return &client;
  return nullptr;
}

void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, int peer_uid,
                  const std::string& peer) {
  if (listener.metrics_only) return only_metrics(exchange);
  if (!row_of(exchange.route).needs_key) return;
  if (const auto authorization = exchange.header("Authorization"); !authorization.empty()) {
    exchange.principal = by_key(app, authorization, peer);
    return;
  }
  std::optional<Principal> principal;
  if (listener.unix_socket) {
    refuse_forwarded(exchange);
    if (peer_uid >= 0) principal = app.authenticator.by_peer_uid(static_cast<uint32_t>(peer_uid));
    if (!principal) {
      throw ApiError{.code = Code::kUnauthenticated,
                     .message =
                         "over the Unix socket the gateway's own user and root are admitted; others send "
                         "`Authorization: Bearer KEY`"};
    }
  } else {
    principal = by_certificate(app, exchange);
    if (!principal) principal = by_loopback(app, exchange, listener, peer);
    if (!principal)
      throw ApiError{.code = Code::kUnauthenticated,
                     .message = "a key is needed: send `Authorization: Bearer KEY`"};
  }
  exchange.principal = std::move(*principal);
}

}  // namespace isogate::front
