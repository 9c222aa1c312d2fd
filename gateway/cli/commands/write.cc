// isogate write
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/output.h"
#include "gateway/cli/progress.h"
#include "lib/fd.h"

namespace isogate::cli {
int run_write(const WriteOptions& options) {
  bool json = options.client.json;
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), json);
  Fd file;
  bool from_stdin = options.source.empty() || options.source == "-";
  if (!from_stdin) {
    file.reset(::open(options.source.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) {
      complain(os_error("cannot read `" + options.source + "`", errno).message);
      return kFailed;
    }
  }
  HttpRequest request;
  request.method = "PUT";
  request.target = raw_target(options, Query()
                                           .flag("append", options.append)
                                           .flag("durable", options.durable)
                                           .flag("replace", options.replace)
                                           .add("mode", options.mode));
  request.content_type = "application/octet-stream";
  request.body_fd = from_stdin ? 0 : file.get();
  struct stat there {};
  if (::fstat(request.body_fd, &there) == 0 && S_ISREG(there.st_mode)) {
    const off_t left = there.st_size - (from_stdin ? ::lseek(0, 0, SEEK_CUR) : 0);
    // 0 is also the size of a file that the kernel generates on reading.
    if (left > 0) request.body_bytes = static_cast<uint64_t>(left);
  }
  std::optional<Progress> progress;
  if (options.progress) {
    progress.emplace();
    request.sent = [&](uint64_t bytes) { progress->moved(bytes); };
  }
  auto answer = client->call(request);
  progress.reset();
  if (!answer.ok()) return report_local(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  if (json) print(answer->body);
  return kDone;
}

}  // namespace isogate::cli
