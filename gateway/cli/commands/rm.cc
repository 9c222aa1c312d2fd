// isogate rm

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/output.h"

namespace isogate::cli {

int run_remove(const RemoveOptions& options) {
  end_on_signals();
  bool json = options.client.json;
  HttpRequest request;
  request.method = "DELETE";
  request.target = raw_target(options, options.recursive ? "recursive=true" : "");
  auto answer = call_gateway(options.client, request);
  if (!answer.ok()) return report(answer.error(), json);
  if (!answer->ok()) {
    const int code = report_refusal(*answer, json);
    if (answer->status == 409 && !options.recursive && !json)
      advise("`isogate rm -r PATH` removes a directory and all that is in it.");
    return code;
  }
  if (json) print(answer->body);
  return kDone;
}

}  // namespace isogate::cli
