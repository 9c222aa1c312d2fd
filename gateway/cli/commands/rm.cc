// isogate rm

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/output.h"

namespace isogate::cli {

int run_remove(const RemoveOptions& options) {
  bool json = options.client.json;
  const std::string target = raw_target(options, Query().flag("recursive", options.recursive));
  const auto [failed, answer] = ask(options.client, {.method = "DELETE", .target = target});
  if (answer.status == 409 && !options.recursive && !json)
    advise("`isogate rm -r PATH` removes a directory and all that is in it.");
  if (failed == kDone && json) print(answer.body);
  return failed;
}

}  // namespace isogate::cli
