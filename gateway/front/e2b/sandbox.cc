#include "gateway/front/e2b/sandbox.h"

#include "gateway/front/api/access.h"
#include "gateway/front/api/port_proxy.h"
#include "gateway/front/e2b/listener.h"
#include "gateway/front/http/http_text.h"
#include "lib/clock.h"
#include "lib/hash.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

constexpr size_t kIdSize = 21;
constexpr size_t kTriedForAnyone = 1000;  // sandboxes, at about 1 us each

std::string id_of(std::string_view secret) { return "i" + base32_lower(sha256(secret).substr(0, 12)); }

// Looks through all: a URL that an SDK signs names its sandbox by nothing else. Records are not parsed again.
std::string sandbox_of_signature(const App& app, const Signature& signature, const std::string& peer) {
  auto& tokens = app.e2b->tokens;
  const auto all = app.sandboxes.records.all_e2b();
  if (all.size() > kTriedForAnyone)
    if (const auto wait = app.wrong_keys.must_wait(peer, std::chrono::steady_clock::now()))
      throw too_many_wrong_keys(*wait);
  if (tokens.size() > 2 * all.size()) tokens.clear();
  for (const auto& sandbox : all) {
    const auto [token, is_new] = tokens.try_emplace(sandbox->row.agent_id);
    if (is_new)
      if (const auto record = record_in(sandbox->row.e2b_record)) token->second = record->token;
    if (signature.fits(token->second)) return sandbox->row.agent_id;
  }
  return {};
}

}  // namespace

ApiError no_such_sandbox(const std::string& id) {
  return {.code = Code::kSandboxNotFound,
          .message = "the sandbox `" + printable(id, 80) +
                     "` was not found: it was ended, or its timeout has passed"};
}

std::optional<Found> found_in(std::shared_ptr<Sandbox> sandbox) {
  if (!sandbox || !sandbox->known || !sandbox->row.was_accepted()) return std::nullopt;
  const SandboxRow& row = sandbox->row;
  auto record = record_in(row.e2b_record);
  if (!record || record->home.empty() || (row.expires_ms != 0 && row.expires_ms <= steady_date_ms()))
    return std::nullopt;
  return Found{std::move(sandbox), std::move(*record)};
}

Found find_sandbox(const App& app, const std::string& tenant, const std::string& id) {
  auto found = found_in(app.sandboxes.records.known(tenant, id));
  if (!found) throw no_such_sandbox(id);
  return std::move(*found);
}

std::optional<Found> look_for_sandbox(const App& app, const std::string& id) {
  return found_in(app.sandboxes.records.known_e2b(id));
}

std::string new_token() {
  const std::string secret = base32_lower(random_bytes(32));
  return id_of(secret) + "x" + secret;
}

std::string sandbox_of_token(std::string_view token) {
  return is_sandbox_token(token) ? std::string(token.substr(0, kIdSize)) : std::string();
}

bool was_made_for(std::string_view token, std::string_view id) {
  return is_sandbox_token(token) && id == token.substr(0, kIdSize) && id == id_of(token.substr(kIdSize + 1));
}

std::string sandbox_named(const App& app, const Exchange& exchange, const std::string& peer) {
  std::string id(exchange.header("E2b-Sandbox-Id"));
  if (id.empty()) id = sandbox_of_token(exchange.header("X-Access-Token"));
  if (id.empty())
    if (const auto host = port_host(exchange.header("Host"), app.config.e2b.domain)) id = host->agent;
  if (id.empty()) {
    if (const auto signature = signature_in(exchange)) return sandbox_of_signature(app, *signature, peer);
    throw invalid_request(
        "the request names no sandbox: E2B_SANDBOX_URL makes SDKs send `E2b-Sandbox-Id`, and below "
        "`e2b.domain` the Host "
        "names it");
  }
  return id;
}

}  // namespace isogate::front::e2b
