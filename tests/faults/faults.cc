#include "tests/faults/faults.h"

#include <sqlite3.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace isogate::test {

std::unique_ptr<Gateway> start(const std::string& yaml, const std::string& state_dir) {
  GatewayOptions options;
  options.yaml = yaml;
  options.state_dir = state_dir;
  return std::make_unique<Gateway>(options);
}

std::map<std::string, JournalRow> journal_of(const std::string& state_dir) {
  sqlite3* database = nullptr;
  if (sqlite3_open((state_dir + "/front/state.db").c_str(), &database) != SQLITE_OK)
    throw std::runtime_error("cannot open the journal: " + std::string(sqlite3_errmsg(database)));
  std::map<std::string, JournalRow> rows;
  const auto add = [](void* to, int, char** text, char**) {
    auto& row = (*static_cast<std::map<std::string, JournalRow>*>(to))[text[0]];
    row = {text[1] == nullptr ? "" : text[1], text[2] == nullptr ? "" : text[2], text[3] != nullptr};
    return 0;
  };
  char* problem = nullptr;
  sqlite3_exec(database, "SELECT command, outcome, reason, ended_ms FROM execs", add, &rows, &problem);
  const std::string text = problem == nullptr ? "" : problem;
  sqlite3_free(problem);
  sqlite3_close(database);
  if (!text.empty()) throw std::runtime_error("cannot read the journal: " + text);
  return rows;
}

std::vector<pid_t> processes_of(const Gateway& gateway) {
  std::vector<pid_t> pids = {gateway.pid()};
  for (pid_t pid : children_of(gateway.pid()))
    if (command_line(pid).find(" _") != std::string::npos) pids.push_back(pid);
  return pids;
}

Json logged(const Gateway& gateway, const std::vector<std::string>& parts) {
  Json found;
  eventually(5, [&] {
    std::istringstream lines(gateway.log());
    for (std::string line; found.is_null() && std::getline(lines, line);)
      if (std::ranges::all_of(parts, [&](const auto& part) { return line.find(part) != std::string::npos; }))
        if (Json parsed = Json::parse(line, nullptr, false); parsed.is_object()) found = std::move(parsed);
    return !found.is_null();
  });
  return found;
}

Json backend_row(const Caller& caller, const std::string& backend) {
  const Answer answer = caller.get("/backends");
  for (const Json& row : answer.body.value("backends", Json::array()))
    if (row.at("name") == backend) return row;
  throw std::runtime_error("no backend `" + backend + "` in " + answer.text);
}

bool works_within(double seconds, const Caller& caller) {
  return eventually(seconds, [&] {
    try {
      const Answer answer = caller.exec("echo works");
      EXPECT_TRUE(answer.status == 200 || answer.status == 503) << answer.text;
      return answer.status == 200 && answer.body.at("stdout") == "works\n";
    } catch (const std::runtime_error&) {
      return false;  // nothing listens yet
    }
  });
}

}  // namespace isogate::test
