// isogate watch
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/commands/exec.h"
#include "gateway/cli/event_stream.h"
#include "gateway/cli/output.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxEventBytes = 1u << 20;

Error no_watch(const std::string& what) {
  return {ISOGATE_LOST, 0, "the gateway's events make no sense: " + what};
}

std::string path_in(const Json& change, const std::string& key) {
  std::string path = decoded_name(change.at(key).get<std::string>(), change.value(key + "_encoding", ""));
  if (change.at("directory").get<bool>()) path += '/';
  return ::isatty(1) == 0 ? path : printable(path, SIZE_MAX);
}

std::string line_of(const Json& change) {
  std::string type = change.at("type").get<std::string>();
  const bool renamed = type == "renamed";
  type.resize(std::max<size_t>(type.size(), 10), ' ');
  return type + " " + (renamed ? path_in(change, "from") + " -> " : "") + path_in(change, "path") + "\n";
}

// `end`: of the watch, when it comes.
Result<void> print_event(const std::string& event, const std::string& data, bool json,
                         std::optional<Json>& end) try {
  if (event.empty()) return {};
  const Json value = Json::parse(data);
  if (event == "end") end = value;
  if (json) return write_all(1, Json{{"event", event}, {"data", value}}.dump() + "\n");
  if (event == "change") return write_all(1, line_of(value));
  if (event == "overflow") complain("changes were lost: list the directory again");
  return {};
} catch (const Json::exception& error) {
  return no_watch(error.what());
}

}  // namespace

int run_watch(const WatchOptions& options) {
  const bool json = options.client.json;
  const Query query = Query()
                          .add("recursive", options.recursive ? "true" : "false")
                          .add("agent_id", options.agent)
                          .add("path", options.path)
                          .add("scope", options.scope)
                          .add("user", options.user);
  const HttpRequest request{
      .method = "GET", .target = "/workspace/watch" + query.text(), .body_wait_sec = kStreamSilenceSec};
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), json);
  std::optional<Json> end;
  ServerEvents events(kMaxEventBytes, [&](const std::string& event, const std::string& data) {
    return print_event(event, data, json, end);
  });
  auto answer = client->call(request, [&](std::string_view bytes) { return events.feed(bytes); });
  if (!answer.ok()) return report(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  if (!end) return report(no_watch("they end without an `end`"), json);
  if (!json) complain("the watch has ended: " + for_terminal(end->at("message").get<std::string>()));
  return kFailed;
}

}  // namespace isogate::cli
