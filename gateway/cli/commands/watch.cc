// isogate watch
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/commands/exec.h"
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
  std::string path = change.at(key).get<std::string>();
  if (change.value(key + "_encoding", "") == "base64")
    if (auto bytes = from_base64(path); bytes.ok()) path = *bytes;
  if (change.at("directory").get<bool>()) path += '/';
  return ::isatty(1) == 0 ? path : printable(path, SIZE_MAX);
}

std::string line_of(const Json& change) {
  std::string type = change.at("type").get<std::string>();
  const bool renamed = type == "renamed";
  type.resize(std::max<size_t>(type.size(), 10), ' ');
  return type + " " + (renamed ? path_in(change, "from") + " -> " : "") + path_in(change, "path") + "\n";
}

// Server-Sent Events as they come, however they are cut.
class WatchPrinter {
 public:
  explicit WatchPrinter(bool json) : json_(json) {}

  Result<void> feed(std::string_view bytes) {
    pending_ += bytes;
    size_t begin = 0;
    for (size_t end; (end = pending_.find("\n\n", begin)) != std::string::npos; begin = end + 2)
      if (auto taken = take(std::string_view(pending_).substr(begin, end - begin)); !taken.ok()) return taken;
    pending_.erase(0, begin);
    if (pending_.size() > kMaxEventBytes) return no_watch("one of over 1 MiB");
    return {};
  }
  // None: the stream was cut.
  [[nodiscard]] const std::optional<Json>& end() const { return end_; }

 private:
  Result<void> take(std::string_view block) try {
    std::string event, data;
    while (!block.empty()) {
      const std::string_view line = next_part(block, '\n');
      if (line.starts_with("event: ")) event = line.substr(7);
      if (line.starts_with("data: ")) data = line.substr(6);
    }
    if (event.empty()) return {};
    const Json value = Json::parse(data);
    if (event == "end") end_ = value;
    if (json_) return write_all(1, Json{{"event", event}, {"data", value}}.dump() + "\n");
    if (event == "change") return write_all(1, line_of(value));
    if (event == "overflow") complain("changes were lost: list the directory again");
    return {};
  } catch (const Json::exception& error) {
    return no_watch(error.what());
  }

  const bool json_;
  std::string pending_;
  std::optional<Json> end_;
};

}  // namespace

int run_watch(const WatchOptions& options) try {
  end_on_signals();
  const bool json = options.client.json;
  std::string query = options.recursive ? "?recursive=true" : "?recursive=false";
  for (const auto& [name, value] : {std::pair<const char*, const std::string&>{"agent_id", options.agent},
                                    {"path", options.path},
                                    {"scope", options.scope},
                                    {"user", options.user}})
    if (!value.empty()) query.append("&").append(name).append("=").append(percent_encode(value));
  const HttpRequest request{
      .method = "GET", .target = "/workspace/watch" + query, .wait_sec = kStreamSilenceSec};
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), json);
  WatchPrinter printer(json);
  auto answer = client->call(request, [&](std::string_view bytes) { return printer.feed(bytes); });
  if (!answer.ok()) return report(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  if (!printer.end()) return report(no_watch("they end without an `end`"), json);
  if (!json)
    complain("the watch has ended: " + for_terminal(printer.end()->at("message").get<std::string>()));
  return kFailed;
} catch (const Json::exception& error) {
  return makes_no_sense(error);
}

}  // namespace isogate::cli
