// isogate logs
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/commands/exec.h"
#include "gateway/cli/event_stream.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

// Output that ends without an exit event has an end all the same: what `state` counted before.
Result<void> whole_until(const EventStream& events, const Json& state) {
  for (const bool of_stderr : {false, true}) {
    const Json kept = state.value(of_stderr ? "stderr" : "stdout", Json::object());
    const auto first = kept.value("first_offset", uint64_t{0}), next = kept.value("next_offset", uint64_t{0});
    if (first < next && events.next_offset(of_stderr) < next)
      return Error{ISOGATE_LOST, 0, "the gateway's answer was cut short"};
  }
  return {};
}

}  // namespace

int run_logs(const LogsOptions& options) {
  const bool json = options.client.json;
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), json);
  HttpRequest request{.method = "GET", .target = "/execs/" + percent_encode(options.exec_id)};
  const auto [failed, known] = ask(*client, request, json);
  if (failed != kDone) return failed;
  const Json state = Json::parse(known.body);
  if (check_agent(state, options.agent) != kDone) return kFailed;
  request.target += options.follow ? "/output?follow=true" : "/output";
  request.body_wait_sec = kStreamSilenceSec;
  EventStream events(printing(json, false));
  auto answer = client->call(request, [&](std::string_view bytes) { return events.feed(bytes); });
  if (!answer.ok()) return report_local(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  auto end = events.pause();
  if (!end.ok()) return report_local(end.error(), json);
  if (*end) return kDone;
  auto whole = options.follow ? Result<void>(events.finish().error()) : whole_until(events, state);
  return whole.ok() ? kDone : report_local(whole.error(), json);
}

}  // namespace isogate::cli
