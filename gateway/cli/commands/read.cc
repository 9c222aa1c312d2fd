// isogate read
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/copy_tree.h"
#include "gateway/cli/output.h"
#include "gateway/cli/progress.h"
#include "lib/fd.h"

namespace isogate::cli {
namespace {

// Where the bytes go: stdout, what is there already if it is no regular file, or a new file beside it
// that takes its name when it is complete.
class Destination {
 public:
  static Result<Destination> open(const std::string& path, uint32_t mode) {
    Destination to;
    if (path.empty() || path == "-") return to;
    struct stat there {};
    bool exists = ::stat(path.c_str(), &there) == 0;
    if (exists && S_ISDIR(there.st_mode)) return os_error("cannot write `" + path + "`", EISDIR);
    if (exists && !S_ISREG(there.st_mode)) {
      to.file_.reset(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    } else {
      to.path_ = path;
      to.unfinished_ = path + ".XXXXXX";
      to.file_.reset(::mkostemp(to.unfinished_.data(), O_CLOEXEC));
      if (to.file_) ::fchmod(to.file_.get(), exists ? there.st_mode & 0777 : mode & ~umask_now());
    }
    if (!to.file_) return os_error("cannot write `" + path + "`", errno);
    remove_when_interrupted(to.unfinished_);
    return to;
  }

  Destination(Destination&&) = default;
  ~Destination() {
    if (unfinished_.empty()) return;
    ::unlink(unfinished_.c_str());
    remove_when_interrupted("");
  }

  [[nodiscard]] int fd() const { return file_ ? file_.get() : 1; }

  Result<void> complete() {
    if (unfinished_.empty()) return {};
    if (::rename(unfinished_.c_str(), path_.c_str()) != 0)
      return os_error("cannot write `" + path_ + "`", errno);
    unfinished_.clear();
    remove_when_interrupted("");
    return {};
  }

 private:
  Destination() = default;
  Fd file_;
  std::string path_, unfinished_;
};

std::string range_of(const ReadOptions& options) {
  if (options.offset == 0 && !options.limit) return "";
  std::string range = "bytes=" + std::to_string(options.offset) + "-";
  if (options.limit) range += std::to_string(options.offset + *options.limit - 1);
  return range;
}

}  // namespace

int run_read(const ReadOptions& options) {
  bool json = options.client.json;
  if (options.limit && options.offset > UINT64_MAX - *options.limit)
    return report(invalid("--offset plus --limit is more than a file can hold"), json);
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), json);
  auto to = Destination::open(options.output, options.mode.value_or(0666));
  if (!to.ok()) return report_local(to.error(), json);
  HttpRequest request;
  request.method = "GET";
  request.target = raw_target(options);
  if (std::string range = range_of(options); !range.empty()) request.headers.emplace_back("Range", range);
  std::optional<Progress> progress;
  if (options.progress) progress.emplace();
  auto answer = client->call(request, [&](std::string_view bytes) {
    if (progress) progress->moved(bytes.size());
    return write_all(to->fd(), bytes);
  });
  progress.reset();
  if (!answer.ok()) return report_local(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  if (!request.headers.empty() && answer->status != 206)
    return report(Error{ISOGATE_LOST, 0, "the gateway sent the whole file instead of the requested part"},
                  json);
  auto completed = to->complete();
  return completed.ok() ? kDone : report_local(completed.error(), json);
}

}  // namespace isogate::cli
