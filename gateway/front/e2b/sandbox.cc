#include "gateway/front/e2b/sandbox.h"

#include "gateway/front/e2b/door.h"
#include "gateway/front/http/http_text.h"
#include "lib/clock.h"
#include "lib/hash.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

ApiError not_there(const std::string& id) {
  return {
      .code = Code::kSandboxNotFound,
      .message = "the sandbox `" + printable(id, 80) + "` was not found: it was ended, or its time is over"};
}

Found found_in(std::shared_ptr<Sandbox> sandbox, const std::string& id) {
  if (!sandbox || !sandbox->row.was_accepted()) throw not_there(id);
  const SandboxRow& row = sandbox->row;
  auto record = record_in(row.door);
  if (!record || (row.expires_ms != 0 && row.expires_ms <= steady_date_ms())) throw not_there(id);
  return {std::move(sandbox), std::move(*record)};
}

}  // namespace

Found find_sandbox(const App& app, const std::string& tenant, const std::string& id) {
  return found_in(app.sandboxes.find(tenant, id), id);
}

Found find_sandbox(const App& app, const std::string& id) {
  return found_in(app.sandboxes.find_of_door(id), id);
}

HostName host_name(const App& app, const Exchange& exchange) {
  const std::string& domain = app.config.e2b.domain;
  std::string_view host = exchange.header("Host");
  host = host.substr(0, host.find(':'));
  if (domain.empty() || host.size() <= domain.size()) return {};
  const size_t dot = host.size() - domain.size() - 1;
  if (host[dot] != '.' || !equal_no_case(host.substr(dot + 1), domain)) return {};
  const std::string_view name = host.substr(0, dot);
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos) return {};
  return {std::string(name.substr(0, dash)), std::string(name.substr(dash + 1))};
}

std::string new_token(const std::string& id) { return id + "x" + base32_lower(random_bytes(32)); }

std::string sandbox_of_token(std::string_view token) {
  constexpr size_t kId = 21, kRest = 53;  // "i" and 96 bits; "x" and 256
  return token.size() == kId + kRest ? std::string(token.substr(0, kId)) : std::string();
}

std::string sandbox_named(const App& app, const Exchange& exchange) {
  std::string id(exchange.header("E2b-Sandbox-Id"));
  if (id.empty()) id = sandbox_of_token(exchange.header("X-Access-Token"));
  if (id.empty()) id = host_name(app, exchange).sandbox;
  if (id.empty()) {
    for (const auto& sandbox : app.sandboxes.of_doors()) {
      const auto record = record_in(sandbox->row.door);
      if (record && is_signed(exchange, *record)) return sandbox->row.agent_id;
    }
    throw invalid_request(
        "the request names no sandbox: E2B_SANDBOX_URL makes SDKs send `E2b-Sandbox-Id`, and below "
        "`e2b.domain` the Host "
        "names it");
  }
  return id;
}

}  // namespace isogate::front::e2b
