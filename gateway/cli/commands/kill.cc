// isogate kill
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/event_stream.h"
#include "gateway/cli/output.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

HttpRequest kill_request(const KillOptions& options) {
  const std::string target = "/execs/" + percent_encode(options.exec_id);
  if (options.signal.empty()) return {.method = "DELETE", .target = target};
  return post(target + "/signal", {{"signal", options.signal}});
}

}  // namespace

int run_kill(const KillOptions& options) {
  end_on_signals();
  const bool json = options.client.json;
  const auto [failed, answer] = ask(options.client, kill_request(options));
  if (failed != kDone) return failed;
  if (json) print(answer.body);
  if (json || !options.signal.empty()) return kDone;
  auto end = parse_exec_end(answer.body);
  if (!end.ok()) return report(end.error(), json);
  print(end->text() + "\n");
  return kDone;
}

}  // namespace isogate::cli
