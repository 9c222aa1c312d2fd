// isogate sandbox
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "gateway/cli/client.h"
#include "gateway/cli/exit_code.h"
#include "gateway/cli/output.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

std::string time_text(int64_t ms) {
  const time_t seconds = static_cast<time_t>(ms / 1000);
  struct tm broken_down {};
  ::gmtime_r(&seconds, &broken_down);
  char text[32];
  ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &broken_down);
  return text;
}

using Row = std::vector<std::string>;

std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i)
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text += row.back() + "\n";
  }
  return text;
}

int show(const std::string& body) try {
  Json sandboxes = Json::parse(body).at("sandboxes");
  std::stable_sort(sandboxes.begin(), sandboxes.end(), [](const Json& a, const Json& b) {
    return a.at("last_used_ms").get<int64_t>() > b.at("last_used_ms").get<int64_t>();
  });
  std::vector<Row> rows = {{"AGENT", "BACKEND", "ISOLATION", "STATE", "EXECS", "LAST USED", "SANDBOX"}};
  for (const Json& one : sandboxes)
    rows.push_back({one.at("agent_id"), one.at("backend"), one.at("isolation"), one.at("state"),
                    std::to_string(one.at("running_execs").get<uint64_t>()),
                    time_text(one.at("last_used_ms").get<int64_t>()), one.at("sandbox_id")});
  print(for_terminal(aligned(rows)));
  return kDone;
} catch (const Json::exception& error) {
  complain(std::string("the gateway's answer makes no sense: ") + error.what());
  return kGateway;
}

int end_one(HttpClient& client, const std::string& agent, const SandboxOptions& options) {
  const bool json = options.client.json;
  HttpRequest request;
  request.method = "DELETE";
  request.target = "/sandboxes/" + escape_value(agent) + (options.purge ? "?purge=true" : "");
  auto answer = client.call(request);
  if (!answer.ok()) return report(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  if (json) print(answer->body);
  return kDone;
}

}  // namespace

int run_sandbox_list(const SandboxOptions& options) {
  end_on_signals();
  const bool json = options.client.json;
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), json);
  HttpRequest request;
  request.method = "GET";
  request.target = "/sandboxes";
  auto answer = client->call(request);
  if (!answer.ok()) return report(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  if (!json) return show(answer->body);
  print(answer->body);
  return kDone;
}

// All are tried; the first failure is the exit code.
int run_sandbox_remove(const SandboxOptions& options) {
  end_on_signals();
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), options.client.json);
  int result = kDone;
  for (const std::string& agent : options.agents) {
    const int ended = end_one(*client, agent, options);
    if (result == kDone) result = ended;
  }
  return result;
}

}  // namespace isogate::cli
