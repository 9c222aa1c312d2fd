#include "gateway/front/api/port_proxy.h"

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <memory>
#include <string>
#include <vector>

#include "gateway/front/api/router.h"
#include "gateway/front/app.h"
#include "gateway/front/base/alarm.h"
#include "gateway/front/base/changes.h"
#include "gateway/front/base/names.h"
#include "gateway/front/http/auth.h"
#include "gateway/front/http/chunk_decoder.h"
#include "gateway/front/http/http_text.h"
#include "gateway/front/http/request_head.h"
#include "gateway/front/sandboxes/port_connection.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr size_t kProxyPart = 65536;
constexpr int kMostHeads = 16;  // of one answer, the interim ones too

// Of one connection alone (RFC 9110, 7.6.1), or what this gateway writes itself.
constexpr std::string_view kOfConnection[] = {"connection",
                                              "content-length",
                                              "expect",
                                              "keep-alive",
                                              "proxy-authenticate",
                                              "proxy-authorization",
                                              "proxy-connection",
                                              "te",
                                              "trailer",
                                              "transfer-encoding",
                                              "upgrade"};

// The gateway's own: a program in a sandbox gets no key, and nothing that it would pass on as one.
constexpr std::string_view kTrafficHeader = "e2b-traffic-access-token";
constexpr std::string_view kOwn[] = {"e2b-sandbox-id", "e2b-sandbox-port", kTrafficHeader, "x-agent-id",
                                     "x-request-id"};

template <typename List>
bool is_among(const List& list, std::string_view name) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](const auto& one) { return equal_no_case(one, name); });
}

using Fields = std::vector<std::pair<std::string, std::string>>;

// What Connection names besides.
std::vector<std::string> named_by_connection(const Fields& fields) {
  std::vector<std::string> all;
  for (const auto& [name, value] : fields) {
    if (!equal_no_case(name, "connection")) continue;
    for (std::string_view rest = value; !rest.empty();)
      if (const auto token = trimmed(next_part(rest, ',')); !token.empty()) all.emplace_back(token);
  }
  return all;
}

std::string_view value_of(const Fields& fields, std::string_view name) {
  for (const auto& [key, value] : fields)
    if (equal_no_case(key, name)) return value;
  return {};
}

// The protocol that both agree on; empty: none.
std::string_view upgrade_of(const Fields& fields) {
  const auto tokens = named_by_connection(fields);
  return is_among(tokens, "upgrade") ? value_of(fields, "upgrade") : std::string_view{};
}

Fields fields_of(const Exchange& exchange) {
  Fields fields;
  exchange.each_header(
      [&fields](std::string_view name, std::string_view value) { fields.emplace_back(name, value); });
  return fields;
}

// Composed from what was judged: nothing of the request's own framing reaches the port.
std::string head_of(const Exchange& exchange, const Fields& fields, std::string_view upgrade,
                    const Authenticator& keys) {
  const auto named = named_by_connection(fields);
  const auto token = bearer_token(exchange.header("Authorization"));
  const auto whose = token ? keys.by_key(*token) : std::nullopt;
  const bool own_key = whose && whose->tenant == exchange.principal.tenant;  // of others this is no oracle
  const auto is_own = [&](std::string_view name, std::string_view value) {
    if (is_sandbox_token(bearer_token(value).value_or(value))) return true;
    if (!equal_no_case(name, "x-api-key") && !equal_no_case(name, "x-access-token")) return false;
    const auto principal = keys.by_key(value);
    return principal && principal->tenant == exchange.principal.tenant;
  };
  const bool key_apart = (exchange.has_header(kKeyHeader) || exchange.has_header(kTrafficHeader)) && !own_key;
  const BodyFraming body = exchange.body();
  std::string head;
  head.append(exchange.method()).append(" ").append(exchange.target()).append(" HTTP/1.1");
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append("\r\n").append(name).append(": ").append(value);
  };
  for (const auto& [name, value] : fields) {
    const bool is_key =
        equal_no_case(name, kKeyHeader) || (!key_apart && equal_no_case(name, "authorization"));
    if (is_key || is_own(name, value) || is_among(kOfConnection, name) || is_among(kOwn, name) ||
        is_among(named, name))
      continue;
    add(name, value);
  }
  if (body.length) add("Content-Length", std::to_string(*body.length));
  if (body.chunked) add("Transfer-Encoding", "chunked");
  if (!upgrade.empty()) add("Upgrade", upgrade);
  add("Connection", upgrade.empty() ? "close" : "Upgrade");
  return head + "\r\n\r\n";
}

ApiError no_answer(const std::string& why) {
  return {.code = Code::kPortClosed, .message = "the port sent no valid HTTP response: " + why};
}

// One request on its way.
class Proxied {
 public:
  Proxied(App& app, Exchange& exchange, PortConnection& port)
      : app_(app), exchange_(exchange), port_(port), changes_(app.executor) {}

  Task<void> run() {
    const Fields fields = fields_of(exchange_);
    const bool has_body = exchange_.body().chunked || exchange_.body().length.value_or(0) > 0;
    // A body would still be on its way when both directions are the program's: then no switch is offered.
    const std::string upgrade(has_body ? std::string_view() : upgrade_of(fields));
    const std::string head = head_of(exchange_, fields, upgrade, app_.authenticator);
    co_await port_.write(head);
    sent_ = !has_body;
    if (has_body) {
      asio::co_spawn(app_.executor, send_body(), [this](const std::exception_ptr& failed) {
        sent_ = true;
        if (failed && !answered_) {  // nobody waits for what comes of a part of it
          refused_ = failed;
          port_.cut("the request's body did not come whole");
        }
        changes_.notify();
      });
    }
    std::exception_ptr failure;
    try {
      co_await pass_answer(upgrade);
    } catch (...) {
      failure = std::current_exception();
    }
    answered_ = true;
    port_.cut("the request is answered");
    if (!sent_) exchange_.stop_reading();
    co_await changes_.until([this] { return sent_; });
    if (refused_ && !exchange_.begun()) std::rethrow_exception(refused_);
    if (failure) std::rethrow_exception(failure);
  }

  // After a switch the end of its own direction alone is no end of the other.
  void client_is_gone() {
    if (!switched_ || exchange_.closed()) port_.cut("its client has disconnected");
  }

 private:
  // A port that answers before all of it came takes no more, and what is left is not read.
  Task<void> send_body() {
    const bool chunked = exchange_.body().chunked;
    const auto bytes = std::make_unique<std::array<char, kProxyPart>>();
    try {
      while (const size_t n = co_await exchange_.read_body_some(bytes->data(), bytes->size())) {
        if (chunked) {
          std::array<char, 20> size{};
          const auto end = std::to_chars(size.data(), size.data() + 16, n, 16).ptr;
          const std::string part =
              std::string(size.data(), end) + "\r\n" + std::string(bytes->data(), n) + "\r\n";
          if (!co_await port_.write(part)) co_return;
        } else if (!co_await port_.write({bytes->data(), n})) {
          co_return;
        }
      }
      if (chunked) co_await port_.write("0\r\n\r\n");
    } catch (const PortBroken&) {  // the answer says why
    }
  }

  Task<AnswerVerdict> read_head() {
    for (int heads = 0; heads < kMostHeads; ++heads) {
      HeadScanner scanner(app_.config.limits.max_header_bytes);
      std::optional<size_t> size = scanner.scan(early_);
      while (!size) {
        if (!scanner.problem().empty()) throw no_answer(scanner.problem());
        const size_t before = early_.size();
        early_.resize(before + 4096);
        const size_t n = co_await port_.read_some(early_.data() + before, 4096);
        early_.resize(before + n);
        if (n == 0) throw no_answer("it ended the connection");
        size = scanner.scan(early_);
      }
      AnswerVerdict verdict =
          judge_answer(std::string_view(early_).substr(0, *size),
                       {app_.config.limits.max_header_bytes, app_.config.limits.max_headers});
      if (!verdict.problem.empty()) throw no_answer(verdict.problem);
      early_.erase(0, *size);
      const bool is_final = verdict.status >= 200 || verdict.status == 101;
      if (is_final) co_return verdict;  // 100 and 103 are of this connection
    }
    throw no_answer("it sends interim answers without end");
  }

  Task<void> pass_answer(const std::string& upgrade) {
    AnswerVerdict verdict;
    try {
      verdict = co_await read_head();
    } catch (const PortBroken& broken) {
      throw no_answer(broken.why);
    }
    const auto named = named_by_connection(verdict.fields);
    Headers headers;
    for (auto& [name, value] : verdict.fields)
      if (!is_among(kOfConnection, name) && !is_among(named, name) && !equal_no_case(name, "x-request-id"))
        headers.emplace_back(name, value);
    if (verdict.status == 101) {
      const std::string agreed(upgrade_of(verdict.fields));
      if (upgrade.empty() || agreed.empty())
        throw no_answer("it switches to a protocol that was not requested");
      headers.emplace_back("Upgrade", agreed);
      co_return co_await pass_both_ways(headers);
    }
    const bool bodiless = exchange_.method() == "HEAD" || verdict.status == 204 || verdict.status == 304;
    co_await exchange_.begin_proxied(verdict.status, verdict.reason, verdict.body.length, bodiless, headers);
    if (!bodiless) co_await pass_body(verdict.body);
    co_await exchange_.finish();
  }

  // What is cut short stays cut: the answer is not finished then.
  Task<void> pass_body(const BodyFraming& body) {
    std::optional<ChunkDecoder> chunks;
    if (body.chunked) chunks.emplace();
    uint64_t left = body.length.value_or(UINT64_MAX);
    const auto in = std::make_unique<std::array<char, kProxyPart>>(),
               out = std::make_unique<std::array<char, kProxyPart>>();
    std::string early = std::exchange(early_, {});
    for (std::string_view come = early; left > 0;) {
      if (come.empty()) {
        size_t n = 0;
        try {
          n = co_await port_.read_some(in->data(), in->size());
        } catch (const PortBroken&) {
          throw ClientGone{};
        }
        if (n == 0 && (body.chunked || body.length)) throw ClientGone{};
        if (n == 0) co_return co_await end_unmarked();
        come = {in->data(), n};
      }
      if (chunks) {
        const size_t n = chunks->decode(come, out->data(), out->size());
        if (!chunks->problem().empty()) throw ClientGone{};
        if (n > 0) co_await exchange_.write({out->data(), n});
        if (chunks->done()) co_return;
      } else {
        const size_t n = std::min<uint64_t>(come.size(), left);
        co_await exchange_.write(come.substr(0, n));
        if (body.length) left -= n;
        come = {};
      }
    }
  }

  // The end of the connection is that of the answer, if it was one of its own accord.
  Task<void> end_unmarked() {
    port_.end_writing();
    try {
      co_await port_.ended();
    } catch (const PortBroken&) {
      throw ClientGone{};
    }
  }

  Task<void> pass_both_ways(const Headers& headers) {
    port_.make_lasting();
    if (app_.draining) port_.cut("the gateway is shutting down");
    co_await exchange_.switch_protocols(headers);
    switched_ = true;
    port_.on_cut([this] { exchange_.abort(); });
    sent_ = false;
    asio::co_spawn(app_.executor, pass_in(), [this](const std::exception_ptr&) {
      sent_ = true;
      changes_.notify();
    });
    try {
      if (!early_.empty()) co_await exchange_.write(early_);
      const auto bytes = std::make_unique<std::array<char, kProxyPart>>();
      while (const size_t n = co_await port_.read_some(bytes->data(), bytes->size()))
        co_await exchange_.write({bytes->data(), n});
      co_await exchange_.end_writing();
      co_await changes_.until([this] { return sent_; });
      co_await pass_the_rest();
    } catch (...) {
      exchange_.abort();
    }
    port_.on_cut({});
  }

  // The output has ended whole, whatever becomes of the input.
  Task<void> pass_the_rest() {
    port_.on_cut({});
    Alarm patience(app_.executor);
    patience.set(kPortPassWithin, [this] { port_.cut("its client has ended"); });
    try {
      co_await port_.ended();
    } catch (const PortBroken&) {
    }
  }

  Task<void> pass_in() {
    const auto bytes = std::make_unique<std::array<char, kProxyPart>>();
    try {
      while (const size_t n = co_await exchange_.read_switched(bytes->data(), bytes->size()))
        if (!co_await port_.write({bytes->data(), n})) break;
    } catch (const PortBroken&) {
    } catch (const ClientGone&) {
      port_.cut("its client has disconnected");
    }
    port_.end_writing();
  }

  App& app_;
  Exchange& exchange_;
  PortConnection& port_;
  Changes changes_;
  std::string early_;  // of the port, behind the head
  bool sent_ = false;  // nothing of the client is read any more
  bool answered_ = false, switched_ = false;
  std::exception_ptr refused_;  // what is wrong with the request's body
};

Task<void> handle_proxy(App& app, Exchange& exchange) {
  if (app.draining) throw draining();
  exchange.memory.hold(3 * kProxyPart);  // one of the request, two of the answer
  PortTarget target{.tenant = exchange.principal.tenant,
                    .agent = exchange.agent_param,
                    .request_id = exchange.request_id,
                    .port = number_in<uint16_t>(exchange.path_param).value_or(0),
                    .lasting = false};
  Killer& client = exchange.watch_client();
  const auto port = co_await PortConnection::open(app.sandboxes, app.backends, std::move(target),
                                                  app.config.ports.max_per_sandbox, client);
  Proxied proxied(app, exchange, *port);
  const OnKill on_kill(client, [&proxied] { proxied.client_is_gone(); });
  const OnKill on_removal(exchange.unadmitted, [&port] { port->cut(kNoLongerAdmitted); });
  std::exception_ptr failure;
  try {
    co_await proxied.run();
  } catch (...) {
    failure = std::current_exception();
  }
  app.metrics.port_ended(port->backend(), port->sent(), port->received());
  if (failure) {
    if (!exchange.begun()) exchange.check_admitted();
    try {
      std::rethrow_exception(failure);
    } catch (const PortBroken& broken) {
      if (exchange.begun()) throw ClientGone{};
      throw no_answer(broken.why);
    }
  }
}

constexpr Route kProxyRoute{"*", "*", "proxyPort", handle_proxy, {}, {}, Needs::kKeyOfPort};

}  // namespace

void route_to_port_of(Exchange& exchange, std::string_view agent, std::string_view port,
                      const std::string& from) {
  const uint16_t number = number_in<uint16_t>(port).value_or(0);
  if (number == 0 || port.front() == '0' || !valid_agent_id(agent)) throw invalid_request(from);
  const std::string_view target = exchange.target();
  if (target.empty() || (target.front() != '/' && target != "*"))
    throw invalid_request("the request target must be a path that starts with /");
  exchange.route = &kProxyRoute;
  exchange.agent_param = exchange.agent = std::string(agent);
  exchange.path_param = std::to_string(number);
  exchange.query = {};
}

std::optional<PortHost> port_host(std::string_view host, std::string_view domain) {
  host = host.substr(0, host.find(':'));
  if (domain.empty() || host.size() <= domain.size()) return std::nullopt;
  const size_t dot = host.size() - domain.size() - 1;
  if (host[dot] != '.' || !equal_no_case(host.substr(dot + 1), domain)) return std::nullopt;
  const std::string_view name = host.substr(0, dot);
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos) return PortHost{name, {}, {}};
  return PortHost{name, name.substr(0, dash), name.substr(dash + 1)};
}

bool route_to_port(Exchange& exchange, std::string_view domain) {
  const auto host = port_host(exchange.header("Host"), domain);
  if (!host) return false;
  route_to_port_of(exchange, host->agent, host->port,
                   "the host `" + printable(host->name, 80) + "` below ports.domain must be PORT-AGENT");
  return true;
}

}  // namespace isogate::front
