// isogate ps
#include <algorithm>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/event_stream.h"
#include "gateway/cli/output.h"
#include "lib/clock.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

// "12 s", "3 min", "5 h", "2 d"
std::string age_text(int64_t since_ms) {
  constexpr std::pair<int64_t, const char*> kUnits[] = {{86400, " d"}, {3600, " h"}, {60, " min"}, {1, " s"}};
  const int64_t seconds = std::max<int64_t>(0, (wall_clock_ms() - since_ms) / 1000);
  for (const auto& [size, unit] : kUnits)
    if (seconds >= size) return std::to_string(seconds / size) + unit;
  return "0 s";
}

std::string outcome_of(const Json& exec) {
  if (exec.at("state") != "ended") return "-";
  auto end = parse_exec_end(exec.dump());
  return end.ok() ? end->text() : "?";
}

std::string one_line_of(const std::string& command) {
  constexpr size_t kShown = 60;
  std::string line(utf8_prefix(command, kShown));
  std::ranges::replace(line, '\n', ' ');
  return line.size() < command.size() ? line + "…" : line;
}

int show_execs(const std::string& body) {
  Json execs = Json::parse(body).at("execs");
  std::stable_sort(execs.begin(), execs.end(), [](const Json& a, const Json& b) {
    return a.at("started_ms").get<int64_t>() > b.at("started_ms").get<int64_t>();
  });
  std::vector<std::vector<std::string>> rows = {
      {"EXEC ID", "AGENT", "STATE", "OUTCOME", "STARTED", "COMMAND"}};
  for (const Json& one : execs)
    rows.push_back({one.at("exec_id"), one.at("agent_id"), one.at("state"), outcome_of(one),
                    age_text(one.at("started_ms").get<int64_t>()) + " ago", one_line_of(one.at("command"))});
  print_table(rows);
  return kDone;
}

}  // namespace

int run_ps(const PsOptions& options) {
  const std::string target = "/execs" + Query().add("agent_id", options.agent).text();
  return ask_and_show(options.client, {.method = "GET", .target = target}, show_execs);
}

}  // namespace isogate::cli
