#include "gateway/front/api/access.h"

#include "gateway/front/api/router.h"
#include "gateway/front/base/names.h"
#include "gateway/front/http/certificate_names.h"
#include "lib/log.h"
#include "lib/loopback.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

std::optional<std::string_view> optional_header(const Exchange& exchange, std::string_view name) {
  const auto value = exchange.header(name);
  if (value.empty()) return std::nullopt;
  return value;
}

// How a call of this route is given what it needs.
const char* credential_of(const Exchange& exchange, const ListenerInfo& listener) {
  if (listener.kind != ListenerKind::kE2b) return "`Authorization: Bearer KEY`";
  switch (exchange.route->needs) {
    case Needs::kSandboxToken:
      return "the sandbox's token as `X-Access-Token`";
    case Needs::kKeyOfPort:
      return "the sandbox's traffic token as `E2b-Traffic-Access-Token`";
    default:
      return "`X-API-Key: KEY`";
  }
}

}  // namespace

Principal by_key(App& app, const Exchange& exchange, const ListenerInfo& listener, std::string_view key,
                 const std::string& peer) {
  if (!key.empty() && key.size() <= kMaxTokenBytes)
    if (auto principal = app.authenticator.by_key(key)) return std::move(*principal);
  const std::string why = std::string("this key is not known; send ") + credential_of(exchange, listener);
  if (!exchange.principal.tenant.empty()) throw ApiError{.code = Code::kUnauthenticated, .message = why};
  refuse_key(app, peer, why);
}

void refuse_key(App& app, const std::string& peer, const std::string& message) {
  const auto wait = app.wrong_keys.wrong(peer, std::chrono::steady_clock::now());
  if (app.peer_lines.admit(peer, "key_refused", std::chrono::steady_clock::now()))
    log::warn("key_refused", {{"peer", peer}});
  if (wait) throw too_many_wrong_keys(*wait);
  throw ApiError{.code = Code::kUnauthenticated, .message = message};
}

ApiError too_many_wrong_keys(std::chrono::seconds wait) {
  return {.code = Code::kRateLimited,
          .message = "too many wrong keys from this address",
          .retry_after_sec = static_cast<unsigned>(wait.count())};
}

namespace {

// Without a key only of the listed origins.
void refuse_pages(const App& app, const Exchange& exchange) {
  if (!origin_allowed(optional_header(exchange, "Origin"), optional_header(exchange, "Sec-Fetch-Site"),
                      app.config.cors.origins))
    throw ApiError{.code = Code::kPermissionDenied,
                   .message = "requests from web pages need a key, or their origin in `cors.origins`"};
}

// A browser sends its client certificate with whatever a page asks for, so the page has to be a listed one.
std::optional<Principal> by_certificate(const App& app, const Exchange& exchange) {
  const TlsClientConfig* client = client_of(app.config.tls.clients, exchange.certificate_names);
  if (client == nullptr) return std::nullopt;
  refuse_pages(app, exchange);
  return Principal{client->tenant, client->name};
}

// Who connected is a proxy, and somebody else asks.
void refuse_forwarded(const Exchange& exchange, const ListenerInfo& listener) {
  bool forwarded = false;
  exchange.each_header([&](std::string_view name, std::string_view) { forwarded |= names_a_proxy(name); });
  if (!forwarded) return;
  throw ApiError{.code = Code::kUnauthenticated,
                 .message = std::string("a proxy sent this request on, so it needs a key: send ") +
                            credential_of(exchange, listener)};
}

// anonymous: loopback, under its conditions.
std::optional<Principal> by_loopback(const App& app, const Exchange& exchange, const ListenerInfo& listener,
                                     const std::string& peer) {
  auto principal = app.authenticator.by_loopback();
  const BoundAddress bound = bound_address(listener.address);
  if (!principal || !is_loopback(bound.ip) || !is_loopback(peer)) return std::nullopt;
  refuse_forwarded(exchange, listener);
  if (!host_allowed(exchange.header("Host"), bound, app.config.hosts)) {
    throw ApiError{.code = Code::kMisdirectedRequest,
                   .message = "this Host is not served without a key; add it to `hosts`"};
  }
  refuse_pages(app, exchange);
  return principal;
}

void only_metrics(const Exchange& exchange) {
  if (exchange.route->needs != Needs::kKey && exchange.route->needs != Needs::kKeyOfPort) return;
  throw ApiError{.code = Code::kNotFound,
                 .message = "this listener serves /metrics, /livez, /readyz and /healthz alone"};
}

}  // namespace

BoundAddress bound_address(std::string_view listener) {
  const auto [ip, port] = split_address(listener);
  return {std::string(ip), number_in<uint16_t>(port).value_or(0)};
}

void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, int peer_uid,
                  const std::string& peer) {
  if (listener.kind == ListenerKind::kMetrics) return only_metrics(exchange);
  if (exchange.route->needs == Needs::kNothing) return;
  std::string authorization(exchange.header("Authorization"));
  if (exchange.route->needs == Needs::kKeyOfPort && exchange.has_header(kKeyHeader))
    authorization = "Bearer " + std::string(exchange.header(kKeyHeader));
  if (!authorization.empty()) {
    exchange.principal = by_key(app, exchange, listener, bearer_token(authorization).value_or(""), peer);
    return;
  }
  std::optional<Principal> principal;
  if (listener.unix_socket) {
    refuse_forwarded(exchange, listener);
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
                     .message = std::string("a key is needed: send ") + credential_of(exchange, listener)};
  }
  exchange.principal = std::move(*principal);
}

std::string agent_of(const Exchange& exchange, bool multi_agent, const std::optional<std::string>& in_body,
                     const std::optional<std::string>& in_env) {
  std::optional<std::string> agent;
  const auto take = [&agent](const std::string& next, const char* where) {
    if (!valid_agent_id(next)) {
      throw invalid_request(
          std::string(where) + " `" + printable(next, 80) +
          "` is not an agent id: a letter or digit, then at most 62 letters, digits, - or _");
    }
    if (agent && *agent != next) {
      throw invalid_request("the request names two agents, `" + *agent + "` and `" + next + "`; give one");
    }
    agent = next;
  };
  if (in_body) take(*in_body, "agent_id");
  if (!exchange.agent_param.empty()) take(exchange.agent_param, "the path's agent");
  if (exchange.has_header("X-Agent-Id")) take(std::string(exchange.header("X-Agent-Id")), "X-Agent-Id");
  if (in_env) take(*in_env, "env.AGENT_ID");
  if (!agent && multi_agent)
    throw invalid_request(
        "agent_id is missing, and this gateway runs with multi_agent: name one in the body, the path or "
        "X-Agent-Id");
  exchange.agent = agent.value_or("default");
  return exchange.agent;
}

}  // namespace isogate::front
