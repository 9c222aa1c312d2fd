// isogate sandbox
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/output.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

using Row = std::vector<std::string>;

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[32];
  ::snprintf(text, sizeof text, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, kUnits[unit]);
  return text;
}

// "52 MiB / 1.0 GiB"; `~`: programs do not meet the limit.
std::string disk_text(const Json& disk) {
  if (disk.is_null()) return "-";
  const std::string used = size_text(disk.at("used_bytes").get<uint64_t>());
  if (disk.at("limit_bytes").is_null()) return used;
  return used + (disk.at("enforcement") == "enforced" ? " / " : " / ~") +
         size_text(disk.at("limit_bytes").get<uint64_t>());
}

int show_sandboxes(const std::string& body) {
  Json sandboxes = Json::parse(body).at("sandboxes");
  std::stable_sort(sandboxes.begin(), sandboxes.end(), [](const Json& a, const Json& b) {
    return a.at("last_used_ms").get<int64_t>() > b.at("last_used_ms").get<int64_t>();
  });
  std::vector<Row> rows = {
      {"AGENT", "BACKEND", "ISOLATION", "STATE", "EXECS", "DISK", "LAST USED", "SANDBOX"}};
  for (const Json& one : sandboxes)
    rows.push_back({one.at("agent_id"), one.at("backend"), one.at("isolation"), one.at("state"),
                    std::to_string(one.at("running_execs").get<uint64_t>()),
                    disk_text(one.value("disk", Json())), date_text(one.at("last_used_ms").get<int64_t>()),
                    one.at("sandbox_id")});
  print_table(rows);
  return kDone;
}

// What could not be looked at makes it no whole answer.
int whole(const Json& answer) {
  for (const Json& one : answer.at("unknown"))
    complain(for_terminal("backend `" + one.at("backend").get<std::string>() +
                          "` cannot be asked: " + one.at("reason").get<std::string>()));
  return answer.at("unknown").empty() ? kDone : kFailed;
}

void show_orphans(const Json& answer) {
  std::vector<Row> rows = {{"BACKEND", "SANDBOX", "RUNS", "AGENT", "OBJECT"}};
  for (const Json& one : answer.at("orphans"))
    rows.push_back({one.at("backend"), one.at("sandbox_id"), one.at("running").get<bool>() ? "yes" : "no",
                    one.value("agent_id", "-"), one.at("object")});
  print_table(rows);
}

std::string target_of(const std::string& name, const SandboxOptions& options) {
  if (!options.orphans) return "/sandboxes/" + percent_encode(name) + (options.purge ? "?purge=true" : "");
  return "/orphans/" + percent_encode(name) + (options.running ? "?running=true" : "");
}

int end_one(HttpClient& client, const std::string& agent, const SandboxOptions& options) try {
  const bool json = options.client.json;
  const auto [failed, answer] = ask(client, {.method = "DELETE", .target = target_of(agent, options)}, json);
  if (failed != kDone) return failed;
  if (json) print(answer.body);
  return options.orphans ? whole(Json::parse(answer.body)) : kDone;
} catch (const Json::exception& error) {
  return makes_no_sense(error);
}

}  // namespace

int run_sandbox_create(const SandboxCreateOptions& options) {
  nlohmann::ordered_json body = nlohmann::ordered_json::object();
  const auto set = [&body](const char* field, const std::string& value) {
    if (!value.empty()) body[field] = value;
  };
  set("agent_id", options.agent);
  set("image", options.image);
  set("backend", options.backend);
  set("min_isolation", options.min_isolation);
  return ask_and_show(options.client, post("/sandboxes", body), [](const std::string&) { return kDone; });
}

int run_sandbox_list(const SandboxOptions& options) {
  if (!options.orphans)
    return ask_and_show(options.client, {.method = "GET", .target = "/sandboxes"}, show_sandboxes);
  const auto [failed, answer] = ask(options.client, {.method = "GET", .target = "/orphans"});
  if (failed != kDone) return failed;
  if (options.client.json) print(answer.body);
  const Json orphans = Json::parse(answer.body);
  if (!options.client.json) show_orphans(orphans);
  return whole(orphans);
}

// All are tried; the first failure is the exit code.
int run_sandbox_remove(const SandboxOptions& options) {
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
