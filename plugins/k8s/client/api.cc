#include "plugins/k8s/client/api.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/json.h"
#include "lib/text.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

constexpr size_t kListMost = size_t{64} << 20;

std::string dump(const Json& body, const std::string& attempt) try {
  return body.dump();
} catch (const Json::exception&) {
  throw NetError(ISOGATE_INVALID_ARGUMENT, "cannot " + attempt + ": a text is no UTF-8");
}

ApiRequest about(const char* method, const char* verb, const Resource& what) {
  return {.method = method,
          .path = what.path(),
          .attempt = std::string(verb) + " " + what.text(),
          .name = what.name};
}

ApiRequest with_body(const char* method, const char* verb, const Resource& what, const Json& body,
                     const Query& query) {
  ApiRequest request = about(method, verb, what);
  request.query = query;
  request.body = dump(body, request.attempt);
  return request;
}

Json parse(const std::string& text, const ApiRequest& request) {
  if (text.empty()) return nullptr;
  Json answer = parse_shallow(text);
  if (!answer.is_discarded()) return answer;
  throw NetError(ISOGATE_UNAVAILABLE, "cannot " + request.attempt + ": the API server's answer is no JSON", 0,
                 true);
}

constexpr size_t kNameMost = 253;

// Names of objects, plurals and versions: what leads out of its place in a path has no such shape.
const std::string& in_path(const std::string& name, const char* what) {
  if (name.size() > kNameMost || !is_alnum_or(name, "-.:") ||
      name.find_first_not_of('.') == std::string::npos)
    throw NetError(ISOGATE_INVALID_ARGUMENT,
                   "`" + one_line(name, 80) + "` is no " + what + " that a cluster has");
  return name;
}

std::string version_path(const std::string& group_version) {
  const size_t slash = group_version.find('/');
  if (slash == std::string::npos) return "/api/" + in_path(group_version, "version");
  return "/apis/" + in_path(group_version.substr(0, slash), "group") + "/" +
         in_path(group_version.substr(slash + 1), "version");
}

constexpr size_t kReasonMost = 65536;
constexpr int kMostRepeats = 5;

net::Target target_of(const ClusterAccess& access, const Identity& identity) {
  net::Target target{.name = "the API server",
                     .address = access.text(),
                     .unix_path = "",
                     .host = access.host,
                     .port = access.port,
                     .proxy = access.proxy};
  if (!access.tls) return target;
  target.tls = net::Tls{.certificate = identity.certificate,
                        .key = identity.key,
                        .server_name = access.server_name,
                        .verify = access.verify,
                        .trust_listed = true};  // as kubectl
  if (access.authority.empty()) return target;
  try {
    target.tls->authority = read_secret(access.authority, "certificate-authority");
  } catch (const sdk::Error& error) {
    throw NetError(ISOGATE_INVALID_ARGUMENT, "cannot speak TLS with " + target.text() + ": " + error.what());
  }
  return target;
}

// Seconds, as Kubernetes has it; a date is not.
std::optional<std::chrono::seconds> retry_after(const HttpHead& head) {
  constexpr int kLongest = 3600;
  const auto seconds = number_in<int>(head.header("retry-after"));
  if (!seconds || *seconds < 0) return std::nullopt;
  return std::chrono::seconds(std::min(*seconds, kLongest));
}

}  // namespace

std::string Resource::path() const {
  std::string path = version_path(group_version);
  if (!name_space.empty()) path += "/namespaces/" + in_path(name_space, "namespace");
  path += "/" + in_path(plural, "resource");
  if (!name.empty()) path += "/" + in_path(name, "name");
  if (!subresource.empty()) path += "/" + in_path(subresource, "subresource");
  return path;
}

std::string Resource::text() const {
  constexpr size_t kMost = 120;
  std::string what = plural + (subresource.empty() ? "" : "/" + subresource);
  if (name_space.empty() && name.empty()) return one_line(what, kMost);
  what += " `" + name_space + (name_space.empty() || name.empty() ? "" : "/") + name + "`";
  return one_line(what, kMost);
}

RateLimit::RateLimit(double qps, double burst)
    : qps_(qps), burst_(std::max(burst, 1.0)), tokens_(burst_), then_(Budget::Clock::now()) {}

// Whoever finds none takes one all the same, which the bucket owes, and waits as long as the debt lasts.
void RateLimit::take(const Budget& budget) {
  using Seconds = std::chrono::duration<double>;
  if (qps_ <= 0) return;
  Budget::Clock::time_point turn;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Budget::Clock::now();
    tokens_ = std::min(burst_, tokens_ + Seconds(now - then_).count() * qps_);
    then_ = now;
    tokens_ -= 1;
    turn = tokens_ >= 0 ? now
                        : now + std::chrono::duration_cast<Budget::Clock::duration>(Seconds(-tokens_ / qps_));
  }
  while (Budget::Clock::now() < turn) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(turn - Budget::Clock::now());
    if (budget.wait(-1, 0, left) != Budget::Outcome::kCancelled && !budget.over()) continue;
    const std::lock_guard lock(mutex_);
    tokens_ += 1;
    if (!budget.over()) throw NetError(ISOGATE_CANCELLED, "cancelled");
    throw NetError(ISOGATE_UNAVAILABLE, "its turn did not come in time: too many requests to this cluster");
  }
}

// An exec is a GET, too.
Api::Repeat Api::repeat_of(const ApiRequest& request, const Query& upgrade) {
  if (!upgrade.empty()) return Repeat::kNever;
  const bool twice = request.method == "GET" || request.method == "DELETE";
  return twice ? Repeat::kAlways : Repeat::kIfNothingWasDone;
}

net::HttpRequest Api::written(const ApiRequest& request, const Query& upgrade,
                              const Identity& identity) const {
  net::HttpRequest out{request.method, access_.path + request.path, request.body, {}};
  char separator = '?';
  for (const auto& [name, value] : request.query) {
    out.target += separator + percent_encode(name) + "=" + percent_encode(value);
    separator = '&';
  }
  if (!upgrade.empty()) {
    out.headers = upgrade;
  } else {
    out.headers.emplace_back("Accept", "application/json");
  }
  if (!request.body.empty()) out.headers.emplace_back("Content-Type", "application/json");
  out.headers.insert(out.headers.end(), access_.headers.begin(), access_.headers.end());
  if (!identity.authorization.empty()) out.headers.emplace_back("Authorization", identity.authorization);
  return out;
}

std::unique_ptr<HttpConnection> Api::take_kept(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  while (!kept_.empty()) {
    Kept one = std::move(kept_.back());
    kept_.pop_back();
    if (one.certificate == identity.certificate && one.connection->reusable())
      return std::move(one.connection);
  }
  return nullptr;
}

std::unique_ptr<HttpConnection> Api::connect(const Identity& identity, const Budget& budget) const {
  return std::make_unique<HttpConnection>(net::Transport::connect(target_of(access_, identity), budget),
                                          join_address(access_.host, std::to_string(access_.port)),
                                          "the API server");
}

// A certificate and a key that do not go together may have been read in the middle of their replacement.
std::unique_ptr<HttpConnection> Api::connect_renewed(Identity& identity, const Budget& budget) const {
  try {
    return connect(identity, budget);
  } catch (const NetError& error) {
    const bool shown = !identity.certificate.empty() || !identity.key.empty();
    if (error.status() != ISOGATE_INVALID_ARGUMENT || !shown) throw;
  }
  access_.credentials->refused(identity);
  identity = access_.credentials->current(budget);
  return connect(identity, budget);
}

void Api::give(std::unique_ptr<HttpConnection> connection, const std::string& certificate) {
  if (!connection->reusable()) return;
  const std::lock_guard lock(mutex_);
  if (kept_.size() < limits_.kept_most) kept_.push_back({std::move(connection), certificate});
}

ApiStream Api::ask(const ApiRequest& request, const Query& upgrade, const Budget& budget) {
  for (bool first = true;; first = false) {
    Identity identity = access_.credentials->current(budget);
    auto connection = first && upgrade.empty() ? take_kept(identity) : nullptr;
    const bool reused = connection != nullptr;
    if (!reused) connection = connect_renewed(identity, budget);
    try {
      HttpHead head = connection->exchange(written(request, upgrade, identity), budget);
      return {std::move(connection), std::move(head), std::move(identity)};
    } catch (const NetError&) {
      const bool stale = reused && !connection->answered() && connection->broken_off();
      if (!stale || repeat_of(request, upgrade) != Repeat::kAlways) throw;
    }
  }
}

bool Api::may_try_again(const ApiStream& asked, Repeat repeat, const std::string& said, bool& renewed,
                        const Budget& budget) {
  const int status = asked.head.status;
  if (status == 401 && !renewed) {
    renewed = true;
    access_.credentials->refused(asked.identity);
    return access_.credentials->current(budget) != asked.identity;
  }
  if (repeat == Repeat::kNever) return false;
  const auto pause = retry_after(asked.head);
  // An eviction that a disruption budget forbids is also a 429, but does not mean load.
  const bool busy = status == 429 && (pause || said.find("DisruptionBudget") == std::string::npos);
  if (!busy && !(status == 503 && pause && repeat == Repeat::kAlways)) return false;
  const auto wait = std::chrono::milliseconds(pause.value_or(std::chrono::seconds(1)));
  if (budget.left() <= wait) return false;
  if (budget.wait(-1, 0, wait) == Budget::Outcome::kCancelled) throw NetError(ISOGATE_CANCELLED, "cancelled");
  return true;
}

ApiStream Api::send(const ApiRequest& request, const Query& upgrade, bool counted, const Budget& budget) try {
  bool renewed = false;
  for (int repeats = 0;; ++repeats) {
    if (counted) rate_.take(budget);
    ApiStream asked = ask(request, upgrade, budget);
    const int status = asked.head.status;
    if (upgrade.empty() ? status >= 200 && status < 300 : status == 101) return asked;
    if (status < 400)
      throw NetError(ISOGATE_UNAVAILABLE,
                     "the API server answered " + std::to_string(status) + ", which was not expected", 0,
                     true);
    const std::string said = asked.connection->read_reason(kReasonMost, budget);
    give(std::move(asked.connection), asked.identity.certificate);
    if (repeats == kMostRepeats || !may_try_again(asked, repeat_of(request, upgrade), said, renewed, budget))
      throw refusal(request.attempt, status, said, request.name);
  }
} catch (const NetError& error) {
  if (error.http_status() != 0 || error.status() == ISOGATE_CANCELLED) throw;
  throw error.during(request.attempt);
}

std::string Api::text(const ApiRequest& request, const Budget& budget) {
  ApiStream stream = send(request, {}, true, budget);
  try {
    std::string all = stream.connection->read_body(limits_.answer_most, budget);
    give(std::move(stream.connection), stream.identity.certificate);
    return all;
  } catch (const NetError& error) {
    throw error.during(request.attempt);
  }
}

Api::Api(ClusterAccess access, ApiLimits limits)
    : access_(std::move(access)), limits_(limits), rate_(limits.qps, limits.burst) {}

Json Api::call(const ApiRequest& request, const Budget& budget) {
  return parse(text(request, budget), request);
}

Json Api::get(const Resource& what, const Budget& budget) { return call(about("GET", "get", what), budget); }

std::optional<Json> Api::find(const Resource& what, const Budget& budget) {
  std::optional<Json> found;
  net::unless_gone([&] { found = get(what, budget); });
  return found;
}

Json Api::create(const Resource& what, const Json& body, const Budget& budget, const Query& query) {
  return call(with_body("POST", "create", what, body, query), budget);
}

Json Api::replace(const Resource& what, const Json& body, const Budget& budget) {
  return call(with_body("PUT", "replace", what, body, {}), budget);
}

Json Api::remove(const Resource& what, const Json& options, const Budget& budget) {
  if (what.name.empty())
    throw NetError(ISOGATE_INVALID_ARGUMENT, "cannot delete " + what.text() + ": no object is named");
  return call(with_body("DELETE", "delete", what, options, {}), budget);
}

Json Api::list(const Resource& what, const Selection& selection, const Budget& budget) {
  ApiRequest request = about("GET", "list", what);
  if (!selection.labels.empty()) request.query.emplace_back("labelSelector", selection.labels);
  if (!selection.fields.empty()) request.query.emplace_back("fieldSelector", selection.fields);
  request.query.emplace_back("limit", std::to_string(selection.page));
  const auto fail = [&](const char* why) {
    throw NetError(ISOGATE_UNAVAILABLE, "cannot " + request.attempt + ": " + why, 0, true);
  };
  Json whole = {{"metadata", Json::object()}, {"items", Json::array()}};
  size_t bytes = 0;
  for (std::string next;;) {
    const std::string body = text(request, budget);
    bytes += body.size();
    if (bytes > kListMost) fail("there is more than 64 MiB");
    Json page = parse(body, request);
    Json& items = page.is_object() ? page["items"] : page;
    if (!page.is_object() || !(items.is_array() || items.is_null())) fail("the answer is no list");
    for (Json& item : items) whole["items"].push_back(std::move(item));
    const Json& metadata = page["metadata"];
    whole["metadata"]["resourceVersion"] = text_at(metadata, "resourceVersion");
    const std::string token = text_at(metadata, "continue");
    if (token.empty()) return whole;
    if (token == next) fail("it does not end");
    if (!next.empty()) request.query.pop_back();
    request.query.emplace_back("continue", token);
    next = token;
  }
}

}  // namespace isogate::k8s
