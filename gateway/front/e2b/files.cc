// GET and POST /files of E2B's envd, and what else it answers by HTTP.
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "gateway/front/api/router.h"
#include "gateway/front/e2b/entries.h"
#include "gateway/front/e2b/listener.h"
#include "gateway/front/e2b/multipart.h"
#include "gateway/front/e2b/routes.h"
#include "gateway/front/e2b/sandbox.h"
#include "gateway/front/e2b/user.h"
#include "gateway/front/http/http_text.h"
#include "gateway/front/http/json_answer.h"
#include "lib/clock.h"
#include "lib/hash.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

using nlohmann::ordered_json;

constexpr size_t kPiece = 65536;
constexpr std::string_view kSignatureVersion = "v1_";
constexpr size_t kMostDigits = 20;  // of a signature's expiration
constexpr size_t kListed = 512;     // of a file in the answer, but for its name

// SDKs write a query as a form does: a space is a plus.
std::optional<std::string> form_parameter(const Exchange& exchange, std::string_view name) {
  std::string query(exchange.query);
  std::ranges::replace(query, '+', ' ');
  return query_parameter(query, name);
}

// A signature covers the query alone.
std::string user_in_query(const App& app, const Exchange& exchange) {
  const auto name = form_parameter(exchange, "username");
  if (name) return user_named(app.config, *name);
  const bool signed_url = exchange.header("X-Access-Token").empty() && signature_in(exchange);
  return signed_url ? std::string() : user_of(app.config, exchange);
}

std::string path_in_query(const Exchange& exchange) {
  auto path = form_parameter(exchange, "path");
  if (!path || path->empty()) throw invalid_request("the query parameter `path` is missing");
  return std::move(*path);
}

Task<void> write_target(App& app, const Target& target, const NextPiece& next) {
  FileRequest request = target.request;
  request.target.flags |= ISOGATE_FILE_PARENTS | ISOGATE_FILE_REPLACE;  // envd is root: no mode stops it
  co_await write_file(app, std::move(request), next);
}

ordered_json written_json(const Target& target) {
  return {{"name", target.place.shown.substr(target.place.shown.rfind('/') + 1)},
          {"type", "file"},
          {"path", target.place.shown}};
}

Task<void> handle_download(App& app, Exchange& exchange) {
  Target target = target_of(app, exchange, path_in_query(exchange), user_in_query(app, exchange));
  co_await download(app, exchange, std::move(target.request));
}

Task<void> write_parts(App& app, Exchange& exchange, const std::string& boundary, const ReadBody& read,
                       ordered_json& written) {
  exchange.memory.add(2 * kPiece);
  Multipart body(boundary, read);
  std::set<std::string> names;
  const auto path = form_parameter(exchange, "path");
  while (auto part = co_await body.next()) {
    exchange.check_admitted();
    if (part->name != "file") continue;
    if (path && !path->empty() && !written.empty())
      throw invalid_request("the body has several files, and the query one `path`");
    const std::string name = path && !path->empty() ? *path : part->filename.value_or("");
    if (name.empty()) throw invalid_request("a file of the body has no name, and the query no `path`");
    const Target target = target_of(app, exchange, name, user_in_query(app, exchange));
    if (!names.insert(target.place.shown).second)
      throw invalid_request("the body has the file " + printable(target.place.shown, 200) + " twice");
    co_await write_target(app, target, [&] { return body.read(); });
    exchange.memory.add(kListed + 3 * target.place.shown.size());
    written.push_back(written_json(target));
  }
  if (written.empty()) throw invalid_request("the body has no part `file`");
}

Task<void> handle_upload(App& app, Exchange& exchange) {
  check_unconditional(exchange);
  ordered_json written = ordered_json::array();
  ReadBody read = [&](char* data, size_t size) { return exchange.read_body_some(data, size); };
  std::optional<Gunzip> packed;
  if (const auto encoding = exchange.header("Content-Encoding"); equal_no_case(encoding, "gzip")) {
    packed.emplace(read);
    read = [&](char* data, size_t size) { return packed->read(data, size); };
  } else if (!encoding.empty() && !equal_no_case(encoding, "identity")) {
    throw ApiError{.code = Code::kUnsupportedMediaType,
                   .message = "a body may be packed with gzip, and nothing else"};
  }
  if (const auto boundary = boundary_of(exchange.header("Content-Type"))) {
    co_await write_parts(app, exchange, *boundary, read, written);
  } else {
    const Target target = target_of(app, exchange, path_in_query(exchange), user_in_query(app, exchange));
    exchange.memory.add(kPiece);
    std::string piece(kPiece, '\0');
    co_await write_target(app, target, [&]() -> Task<std::string_view> {
      const size_t n = co_await read(piece.data(), piece.size());
      co_return std::string_view(piece).substr(0, n);
    });
    written.push_back(written_json(target));
  }
  co_await send_json(exchange, std::move(written));
}

Task<void> handle_health(App& app, Exchange& exchange) {
  (void)find_sandbox(app, exchange.principal.tenant, exchange.agent_param);
  co_await exchange.send(204, "application/json", "");
}

Task<void> handle_envs(App& app, Exchange& exchange) {
  const Found found = find_sandbox(app, exchange.principal.tenant, exchange.agent_param);
  ordered_json env = found.record.env;
  co_await send_json(exchange, std::move(env));
}

constexpr Route kEnvdFileRoutes[] = {
    {"GET", "/files", "e2bDownload", handle_download}, {"HEAD", "/files", "e2bHead", handle_download},
    {"POST", "/files", "e2bUpload", handle_upload},    {"GET", "/health", "e2bHealth", handle_health},
    {"GET", "/envs", "e2bEnvs", handle_envs},
};

}  // namespace

// A colon in the user's name would let the signature of one path, operation and user stand for others. All
// parts are short: without the sandbox's name each sandbox's token is tried.
std::optional<Signature> signature_in(const Exchange& exchange) {
  const auto signature = query_parameter(exchange.query, "signature");
  if (!signature || exchange.route->path != "/files") return std::nullopt;
  const std::string path = form_parameter(exchange, "path").value_or(""),
                    user = form_parameter(exchange, "username").value_or("");
  if (path.size() > kMaxPath || user.size() > kMaxUser || user.find(':') != std::string::npos)
    return std::nullopt;
  const auto expiration = query_parameter(exchange.query, "signature_expiration");
  if (!signature->starts_with(kSignatureVersion) || (expiration && expiration->size() > kMostDigits))
    return std::nullopt;
  Signature made{.presented = signature->substr(kSignatureVersion.size()),
                 .before = {},
                 .after = expiration ? ":" + *expiration : ""};
  made.before.add(path + (exchange.route->method == "POST" ? ":write:" : ":read:") + user + ":");
  return made;
}

bool Signature::fits(const std::string& token) const {
  Sha256 all = before;
  all.add(token + after);
  std::string expected = base64_encode(std::move(all).digest());
  while (expected.ends_with('=')) expected.pop_back();
  return !token.empty() && equal_constant_time(presented, expected);
}

void check_expiration(const Exchange& exchange) {
  const auto expiration = query_parameter(exchange.query, "signature_expiration");
  if (expiration && number_in<int64_t>(*expiration).value_or(0) <= wall_clock_ms() / 1000)
    throw ApiError{.code = Code::kUnauthenticated, .message = "signature is already expired"};
}

std::span<const Route> file_routes() { return kEnvdFileRoutes; }

}  // namespace isogate::front::e2b
