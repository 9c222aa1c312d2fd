// The part of E2B's control plane that its SDKs use.
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "gateway/base/budgets.h"
#include "gateway/front/api/exec_json.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/e2b/listener.h"
#include "gateway/front/e2b/routes.h"
#include "gateway/front/e2b/sandbox.h"
#include "gateway/front/exec/exec.h"
#include "gateway/front/http/json_answer.h"
#include "lib/clock.h"
#include "lib/hash.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace asio = boost::asio;
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostPairs = 256, kMostPairBytes = 32768;  // kept, and read with each call
constexpr size_t kMostRecord = 131072;                      // as JSON, where a control character is six bytes
constexpr uint64_t kMostListed = 100;
constexpr size_t kReadInATurn = 32;  // records, of a list
constexpr std::chrono::seconds kFirstExecWithin{30};
constexpr uint64_t kMostSaid = 4096;  // by it

// What a program says of where it is: HOME, and whether E2B's name for it leads there.
constexpr const char* kWhereIsHome =
    "if cd /home/user 2>/dev/null && [ \"$(pwd -P)\" = \"$(cd \"$HOME\" && pwd -P)\" ]; then echo "
    "/home/user; "
    "else echo \"$HOME\"; fi";

ApiError not_supported(const std::string& what) { return {.code = Code::kUnsupported, .message = what}; }

// As it was measured; else as configured.
uint64_t limit_of(const App& app, const Sandbox& sandbox, uint32_t id) {
  if (const uint64_t measured = sandbox.in_force.get(id); measured != 0) return measured;
  for (const BackendConfig& backend : app.config.backends)
    if (backend.name == sandbox.row.backend) return backend.sandbox_limits.get(id);
  return 0;
}

uint64_t cpus_of(const App& app, const Sandbox& sandbox) {
  return (limit_of(app, sandbox, ISOGATE_LIMIT_CPU_MILLIS) + 999) / 1000;
}

// What it may have; 0 where there is no limit, or nobody knows it.
void add_size(const App& app, const Sandbox& sandbox, ordered_json& to) {
  to["cpuCount"] = cpus_of(app, sandbox);
  to["memoryMB"] = limit_of(app, sandbox, ISOGATE_LIMIT_MEMORY_BYTES) >> 20;
  to["diskSizeMB"] = sandbox.row.disk_limit_bytes.value_or(0) >> 20;
}

ordered_json created_json(const App& app, const Found& found) {
  ordered_json body = {{"templateID", found.record.template_id},
                       {"sandboxID", found.sandbox->row.agent_id},
                       {"clientID", "isogate"},
                       {"envdVersion", kEnvdVersion},
                       {"envdAccessToken", found.record.token},
                       {"trafficAccessToken", traffic_token(found.record)},
                       {"domain", nullptr}};
  if (!app.config.e2b.domain.empty()) body["domain"] = app.config.e2b.domain;
  return body;
}

ordered_json listed_json(const App& app, const Found& found) {
  const SandboxRow& row = found.sandbox->row;
  ordered_json body = {{"templateID", found.record.template_id},
                       {"alias", found.record.template_id},
                       {"sandboxID", row.agent_id},
                       {"clientID", "isogate"},
                       {"startedAt", utc_text_of_ms(found.record.started_ms)},
                       {"endAt", utc_text_of_ms(row.expires_ms + wall_clock_ahead_ms())},
                       {"state", "running"},
                       {"envdVersion", kEnvdVersion},
                       {"metadata", found.record.metadata}};
  add_size(app, *found.sandbox, body);
  return body;
}

Pairs pairs_in(const json& body, std::string_view name) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return {};
  if (!found->is_object()) throw invalid_request("`" + std::string(name) + "` must be an object of strings");
  if (found->size() > kMostPairs)
    throw invalid_request("`" + std::string(name) + "` has over " + std::to_string(kMostPairs) + " members");
  size_t bytes = 0;
  for (const auto& item : found->items()) {
    if (!item.value().is_string())
      throw invalid_request("`" + std::string(name) + "` must be an object of strings");
    bytes += item.key().size() + item.value().get_ref<const std::string&>().size();
  }
  if (bytes > kMostPairBytes)
    throw invalid_request("`" + std::string(name) + "` is longer than " + std::to_string(kMostPairBytes) +
                          " bytes");
  return found->get<Pairs>();
}

Pairs env_in(const json& body) {
  Pairs env = pairs_in(body, "envVars");
  for (const auto& [name, value] : env)
    if (name.empty() || name.find('=') != std::string::npos)
      throw invalid_request("`envVars`: `" + printable(name, 80) +
                            "` is not a variable's name: it must not be empty or hold `=`");
  return env;
}

// Seconds.
uint64_t timeout_in(const App& app, const json& body, std::string_view name) {
  const auto given = number_field(body, name);
  if (!given) return app.config.e2b.timeout_sec;
  if (!std::isfinite(*given) || *given < 0 || *given > app.config.e2b.max_timeout_sec)
    throw invalid_request("`" + std::string(name) + "` must be 0 to " +
                          std::to_string(app.config.e2b.max_timeout_sec) + " seconds (e2b.max_timeout_sec)");
  return static_cast<uint64_t>(std::ceil(*given));
}

int64_t from_now(uint64_t seconds) { return steady_date_ms() + static_cast<int64_t>(seconds * 1000); }

std::string image_of_template(const App& app, const std::string& name) {
  for (const auto& [known, image] : app.config.e2b.templates)
    if (known == name) return image;
  if (name == "base") return {};
  throw ApiError{.code = Code::kNotFound,
                 .message = "there is no template `" + printable(name, 80) +
                            "`: the operator names them in `e2b.templates`"};
}

bool is_given(const json& body, std::string_view name) {
  const auto found = body.find(name);
  return found != body.end() && !found->is_null() && *found != false &&
         !(found->is_structured() && found->empty());
}

void refuse_what_is_not_there(const json& body) {
  const auto resume = body.find("autoResume");
  const bool resumes = resume != body.end() && resume->is_object() && is_given(*resume, "enabled");
  if (is_given(body, "autoPause") || resumes)
    throw not_supported("sandboxes cannot be paused: leave `autoPause` and `autoResume` out");
  for (const char* name : {"iam", "mcp", "volumeMounts"})
    if (is_given(body, name)) throw not_supported("`" + std::string(name) + "` is not supported");
  if (const auto network = body.find("network"); network != body.end() && network->is_object())
    for (const auto& item : network->items())
      if (item.key() != "allowPublicTraffic" && is_given(*network, item.key()))
        throw not_supported("`network." + printable(item.key(), 80) +
                            "` is not supported: the operator decides with `egress` what sandboxes reach");
}

// The expiry of one that is not ready yet: its time begins then. It is there for a gateway that ends
// meanwhile.
int64_t expiry_while_made(const App& app, uint64_t seconds) {
  const std::chrono::seconds most = budget::kOpen + budget::kMeasure + kFirstExecWithin + budget::kReturn;
  return from_now(seconds + static_cast<uint64_t>(most.count()) + app.config.limits.exec_queue_timeout_sec);
}

// The first exec proves that it works, too.
Task<std::string> ask_for_home(App& app, Exchange& exchange, const std::string& agent) {
  ExecSpec spec;
  spec.tenant = exchange.principal.tenant;
  spec.agent = agent;
  spec.request_id = exchange.request_id;
  spec.call.argv = {app.config.shell, "-c", kWhereIsHome};
  spec.call.env.assign(app.config.exec.env.begin(), app.config.exec.env.end());
  spec.shown = "where is HOME";
  spec.timeout_sec = static_cast<double>(kFirstExecWithin.count());
  spec.existing = true;  // one that is being ended must not come back as another
  Captured captured(kMostSaid, exchange);
  const ExecAnswer answer = co_await run_exec(app, spec, captured, exchange.watch_client(), exchange.memory);
  auto [home, error] = captured.ended(answer);
  while (home.ends_with('\n')) home.pop_back();
  if (answer.outcome != Outcome::kExited || answer.exit_code != 0 || !home.starts_with('/') || !is_utf8(home))
    throw ApiError{
        .code = answer.outcome == Outcome::kExited ? Code::kUnsupported : Code::kBackendUnavailable,
        .message = "the shell of the sandbox does not report where its home is: " +
                   printable(error + answer.reason, 300)};
  co_return home;
}

void check_internet(const json& body, const Lease& lease) {
  const bool denied = lease.backend->config.egress == ISOGATE_EGRESS_DENY;
  if (bool_field(body, "allow_internet_access").value_or(true) || denied) return;
  throw not_supported(
      "`allow_internet_access` is false: the operator has to write `egress: deny` for backend `" +
      lease.backend->config.name + "`, without which nothing measures that sandboxes have no network");
}

// Where it cannot be ended now it has expired, and end_expired() goes on.
Task<void> end_unfinished(App& app, const Exchange& exchange, const std::string& id) {
  const SandboxPtr sandbox = app.sandboxes.records.known(exchange.principal.tenant, id);
  if (!sandbox) co_return;
  try {
    co_await app.sandboxes.end(exchange.principal.tenant, id, true, exchange.request_id);
  } catch (...) {
    sandbox->row.expires_ms = steady_date_ms();
    log::warn("sandbox_not_ended",
              {{"sandbox_id", sandbox->row.sandbox_id}, {"reason", "its creation failed"}});
  }
}

Task<void> handle_create_sandbox(App& app, Exchange& exchange) {
  const json body = co_await read_json_body(app.elsewhere, exchange, app.config.limits.max_json_bytes);
  refuse_what_is_not_there(body);
  Record record{.template_id = text_field(body, "templateID").value_or("base"),
                .token = "",
                .home = "",
                .metadata = pairs_in(body, "metadata"),
                .env = env_in(body),
                .started_ms = wall_clock_ms()};
  const uint64_t seconds = std::max<uint64_t>(timeout_in(app, body, "timeout"), 1);
  record.token = new_token();
  if (const size_t size = record_text(record).size(); size > kMostRecord)
    throw invalid_request("`metadata` and `envVars` have " + std::to_string(size) +
                          " bytes as JSON, where a control character has six; at most " +
                          std::to_string(kMostRecord) + " are kept");
  const std::string id = sandbox_of_token(record.token);
  Wanted wanted{.tenant = exchange.principal.tenant,
                .agent = id,
                .request_id = exchange.request_id,
                .image = image_of_template(app, record.template_id),
                .expires_ms = expiry_while_made(app, seconds),
                .e2b_record = record_text(record)};
  if (wanted.image->empty()) wanted.image.reset();
  std::exception_ptr failure;
  Found found;
  try {
    const Lease lease = co_await app.sandboxes.acquire(wanted);
    check_internet(body, lease);
    record.home = co_await ask_for_home(app, exchange, id);
    co_await app.sandboxes.set_e2b_record(lease.sandbox, from_now(seconds), record_text(record));
    found = {lease.sandbox, record};
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    co_await end_unfinished(app, exchange, id);
    std::rethrow_exception(failure);
  }
  co_await exchange.send(201, "application/json", json_text(created_json(app, found)));
}

Found found_for(App& app, const Exchange& exchange) {
  return find_sandbox(app, exchange.principal.tenant, exchange.agent_param);
}

Task<void> handle_get_sandbox(App& app, Exchange& exchange) {
  const Found found = found_for(app, exchange);
  ordered_json body = listed_json(app, found);
  body["envdAccessToken"] = found.record.token;
  body["domain"] = created_json(app, found)["domain"];
  co_await send_json(exchange, std::move(body));
}

Task<void> handle_kill(App& app, Exchange& exchange) {
  (void)found_for(app, exchange);
  co_await app.sandboxes.end(exchange.principal.tenant, exchange.agent_param, true, exchange.request_id);
  co_await exchange.send(204, "application/json", "");
}

// By the time that the body's field gives.
Task<Found> set_end(App& app, Exchange& exchange, std::string_view field, bool also_earlier) {
  const json body = co_await read_json_body(app.elsewhere, exchange, app.config.limits.max_json_bytes);
  const Found found = found_for(app, exchange);
  const SandboxRow& row = found.sandbox->row;
  int64_t end = from_now(timeout_in(app, body, field));
  if (!also_earlier) end = std::max(end, row.expires_ms);
  co_await app.sandboxes.set_e2b_record(found.sandbox, end, row.e2b_record);
  co_return found;
}

Task<void> handle_timeout(App& app, Exchange& exchange) {
  (void)co_await set_end(app, exchange, "timeout", true);
  co_await exchange.send(204, "application/json", "");
}

Task<void> handle_refresh(App& app, Exchange& exchange) {
  (void)co_await set_end(app, exchange, "duration", false);
  co_await exchange.send(204, "application/json", "");
}

// It runs already.
Task<void> handle_connect_sandbox(App& app, Exchange& exchange) {
  const Found found = co_await set_end(app, exchange, "timeout", false);
  co_await exchange.send(200, "application/json", json_text(created_json(app, found)));
}

// `metadata` is a query string of its own, and SDKs escape it once more.
bool fits(const Record& record, const std::string& parameter) {
  const std::string query = percent_decode(parameter).value_or(parameter);
  for (std::string_view metadata = query; !metadata.empty();) {
    std::string_view text = next_part(metadata, '&');
    const auto name = percent_decode(next_part(text, '='));
    const auto value = percent_decode(text);
    const auto same = [&](const auto& each) { return each.first == name && each.second == value; };
    if (std::ranges::none_of(record.metadata, same)) return false;
  }
  return true;
}

// In a list.
std::pair<int64_t, std::string_view> place_in_list(const SandboxPtr& sandbox) {
  return {sandbox->row.created_ms, sandbox->row.agent_id};
}

bool oldest_first(const Exchange& exchange) { return query_parameter(exchange.query, "order") == "asc"; }

// The newest first, or last. Their records are not read.
std::vector<SandboxPtr> sandboxes_of(const App& app, const Exchange& exchange) {
  std::vector<SandboxPtr> all = app.sandboxes.records.of(exchange.principal.tenant);
  std::erase_if(all, [](const SandboxPtr& each) { return each->row.e2b_record.empty(); });
  std::ranges::sort(all, std::greater(), place_in_list);
  if (oldest_first(exchange)) std::ranges::reverse(all);
  return all;
}

uint64_t number_parameter(std::string_view query, std::string_view name, uint64_t otherwise, uint64_t most) {
  const auto text = query_parameter(query, name);
  if (!text) return otherwise;
  const uint64_t value = number_in<uint64_t>(*text).value_or(0);
  if (value == 0 || value > most)
    throw invalid_request("the query parameter `" + std::string(name) + "` must be 1 to " +
                          std::to_string(most));
  return value;
}

// What a list is asked to leave out. Throws ApiError.
class Filter {
 public:
  explicit Filter(std::string_view query)
      : metadata_(query_parameter(query, "metadata").value_or("")),
        state_(query_parameter(query, "state").value_or("running")),
        template_(query_parameter(query, "template")),
        started_after_(query_parameter(query, "startedAfter").value_or("")) {}

  [[nodiscard]] bool lets_through(const Found& found) const {
    const Record& record = found.record;
    return state_.find("running") != std::string::npos && (!template_ || record.template_id == *template_) &&
           fits(record, metadata_) &&
           (started_after_.empty() || utc_text_of_ms(record.started_ms) >= started_after_);
  }

 private:
  std::string metadata_, state_;
  std::optional<std::string> template_;
  std::string started_after_;  // RFC 3339, UTC: as text it is ordered like the time
};

// `nextToken` is the place of the last one of the page before, which may have ended since: TIME.ID.
class After {
 public:
  explicit After(const Exchange& exchange)
      : token_(query_parameter(exchange.query, "nextToken").value_or("")), up_(oldest_first(exchange)) {
    std::string_view rest = token_;
    const auto time = number_in<int64_t>(next_part(rest, '.'));
    if (!token_.empty() && (!time || rest.empty()))
      throw invalid_request("the query parameter `nextToken` must be one that a list has returned");
    place_ = {time.value_or(0), rest};
  }
  [[nodiscard]] bool has(const SandboxPtr& each) const {
    return token_.empty() || (up_ ? place_in_list(each) > place_ : place_in_list(each) < place_);
  }
  static std::string token_of(const SandboxPtr& last) {
    return std::to_string(last->row.created_ms) + "." + last->row.agent_id;
  }

 private:
  const std::string token_;
  const bool up_;
  std::pair<int64_t, std::string_view> place_;
};

// JSON, claimed; and in `headers` the token of the next one, if there is one.
Task<std::string> page_of(const App& app, Exchange& exchange, Headers& headers) {
  const uint64_t limit = number_parameter(exchange.query, "limit", kMostListed, kMostListed);
  const After after(exchange);
  const Filter filter(exchange.query);
  const std::vector<SandboxPtr> all = sandboxes_of(app, exchange);
  std::string text = "[";
  SandboxPtr last;
  size_t read = 0;
  uint64_t listed = 0;
  for (const SandboxPtr& each : all) {
    if (!after.has(each)) continue;
    if (++read % kReadInATurn == 0) co_await asio::post(asio::use_awaitable);
    const auto found = found_in(each);
    if (!found || !filter.lets_through(*found)) continue;
    if (listed == limit) {
      headers.emplace_back("X-Next-Token", After::token_of(last));
      break;
    }
    const std::string one = json_text(listed_json(app, *found));
    exchange.memory.add(one.size());
    text.append(listed++ == 0 ? "" : ",").append(one);
    last = each;
  }
  text += ']';
  co_return text;
}

Task<void> handle_sandboxes(App& app, Exchange& exchange) {
  Headers headers;
  const std::string page = co_await page_of(app, exchange, headers);
  co_await exchange.send(200, "application/json", page, headers);
}

ordered_json metrics_json(const App& app, const Found& found) {
  const int64_t now = wall_clock_ms();
  ordered_json sample = {{"timestamp", utc_text_of_ms(now)}, {"timestampUnix", now / 1000}};
  sample["cpuCount"] = std::max<uint64_t>(cpus_of(app, *found.sandbox), 1);
  sample["cpuUsedPct"] = 0;
  sample["memUsed"] = 0;
  sample["memTotal"] = limit_of(app, *found.sandbox, ISOGATE_LIMIT_MEMORY_BYTES);
  sample["memCache"] = 0;
  sample["diskUsed"] = found.sandbox->disk ? found.sandbox->disk->used_bytes : 0;
  sample["diskTotal"] = found.sandbox->disk ? found.sandbox->disk->limit_bytes : 0;
  return sample;
}

// Seconds since 1970, and milliseconds from the oldest SDKs.
uint64_t time_parameter(std::string_view query, std::string_view name, uint64_t otherwise) {
  constexpr uint64_t kNoSeconds = 100'000'000'000;
  const uint64_t time = number_parameter(query, name, otherwise, INT64_MAX);
  return time < kNoSeconds || time == otherwise ? time : time / 1000;
}

// What there is to be told is of now.
Task<void> handle_metrics(App& app, Exchange& exchange) {
  co_await app.sandboxes.disks.look(exchange.principal.tenant);
  const Found found = found_for(app, exchange);
  const auto now = static_cast<uint64_t>(wall_clock_ms() / 1000);
  ordered_json samples = ordered_json::array();
  if (time_parameter(exchange.query, "start", 0) <= now &&
      now <= time_parameter(exchange.query, "end", INT64_MAX))
    samples.push_back(metrics_json(app, found));
  co_await send_json(exchange, std::move(samples));
}

Task<void> handle_what_is_not_there(App& app, Exchange& exchange) {
  if (!exchange.agent_param.empty()) (void)found_for(app, exchange);
  throw not_supported(
      "isogate has no pause, snapshots, forks, volumes, logs, rules of a network or builds of templates");
}

// Its parameter is the template's name. Throws ApiError not_found.
Task<void> handle_template_alias(App& app, Exchange& exchange) {
  (void)image_of_template(app, exchange.agent_param);
  ordered_json body = {{"templateID", exchange.agent_param}, {"public", false}};
  co_await send_json(exchange, std::move(body));
}

constexpr Route kControlRoutes[] = {
    {"POST", "/sandboxes", "e2bCreate", handle_create_sandbox, kAnyField},
    {"POST", "/v2/sandboxes", "e2bCreateV2", handle_create_sandbox, kAnyField},
    {"GET", "/sandboxes", "e2bListSandboxes", handle_sandboxes},
    {"GET", "/v2/sandboxes", "e2bListSandboxesV2", handle_sandboxes},
    {"GET", "/sandboxes/{sandbox_id}", "e2bGet", handle_get_sandbox},
    {"DELETE", "/sandboxes/{sandbox_id}", "e2bKill", handle_kill},
    {"POST", "/sandboxes/{sandbox_id}/timeout", "e2bTimeout", handle_timeout, kAnyField},
    {"POST", "/sandboxes/{sandbox_id}/refreshes", "e2bRefresh", handle_refresh, kAnyField},
    {"POST", "/sandboxes/{sandbox_id}/connect", "e2bConnectSandbox", handle_connect_sandbox, kAnyField},
    {"POST", "/v2/sandboxes/{sandbox_id}/connect", "e2bConnectSandboxV2", handle_connect_sandbox, kAnyField},
    {"POST", "/sandboxes/{sandbox_id}/resume", "e2bResume", handle_connect_sandbox, kAnyField},
    {"GET", "/sandboxes/{sandbox_id}/metrics", "e2bMetrics", handle_metrics},
    {"POST", "/sandboxes/{sandbox_id}/pause", "e2bPause", handle_what_is_not_there},
    {"POST", "/sandboxes/{sandbox_id}/fork", "e2bFork", handle_what_is_not_there},
    {"POST", "/sandboxes/{sandbox_id}/snapshots", "e2bSnapshot", handle_what_is_not_there},
    {"PUT", "/sandboxes/{sandbox_id}/network", "e2bNetwork", handle_what_is_not_there},
    {"GET", "/sandboxes/{sandbox_id}/logs", "e2bLogs", handle_what_is_not_there},
    {"GET", "/v2/sandboxes/{sandbox_id}/logs", "e2bLogsV2", handle_what_is_not_there},
    {"GET", "/templates/aliases/{alias}", "e2bTemplateAlias", handle_template_alias},
    {"GET", "/snapshots", "e2bSnapshots", handle_what_is_not_there},
    {"GET", "/volumes", "e2bVolumes", handle_what_is_not_there},
    {"POST", "/volumes", "e2bCreateVolume", handle_what_is_not_there},
    {"POST", "/v3/templates", "e2bBuildTemplate", handle_what_is_not_there},
};

}  // namespace

std::span<const Route> control_routes() { return kControlRoutes; }

}  // namespace isogate::front::e2b
