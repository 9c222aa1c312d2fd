// isogate kill
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/event_stream.h"
#include "gateway/cli/output.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

std::string target_of(const KillOptions& options) { return "/execs/" + percent_encode(options.exec_id); }

HttpRequest kill_request(const KillOptions& options) {
  const std::string target = target_of(options);
  if (options.signal.empty()) return {.method = "DELETE", .target = target};
  return post(target + "/signal", {{"signal", options.signal}});
}

}  // namespace

int run_kill(const KillOptions& options) {
  if (!options.agent.empty()) {
    const auto [unknown, known] = ask(options.client, {.method = "GET", .target = target_of(options)});
    if (unknown != kDone) return unknown;
    if (check_agent(nlohmann::json::parse(known.body), options.agent) != kDone) return kFailed;
  }
  return ask_and_show(options.client, kill_request(options), [&options](const std::string& body) {
    if (!options.signal.empty()) return kDone;
    auto end = parse_exec_end(body);
    if (!end.ok()) return report(end.error(), false);
    print(end->text() + "\n");
    return kDone;
  });
}

}  // namespace isogate::cli
