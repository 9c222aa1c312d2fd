// isogate rm

#include "gateway/cli/client.h"
#include "gateway/cli/exit_code.h"
#include "gateway/cli/file_call.h"
#include "gateway/cli/output.h"

namespace isogate::cli {

int run_remove(const RemoveOptions& options) {
  end_on_signals();
  bool json = options.client.json;
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), json);
  HttpRequest request;
  request.method = "DELETE";
  request.target = raw_target(options, options.recursive ? "recursive=true" : "");
  auto answer = client->call(request);
  if (!answer.ok()) return report(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  if (json) print(answer->body);
  return kDone;
}

}  // namespace isogate::cli
