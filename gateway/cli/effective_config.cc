#include "gateway/cli/effective_config.h"

#include <unistd.h>

#include <climits>

#include "gateway/cli/exit_code.h"
#include "gateway/cli/output.h"

namespace isogate::cli {
namespace {

std::string binary_dir() {
  char path[PATH_MAX];
  ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return "";
  std::string text(path, static_cast<size_t>(size));
  return text.substr(0, text.rfind('/'));
}

}  // namespace

LoadOptions load_options(const ConfigOptions& options) {
  LoadOptions load;
  load.file = options.file;
  load.environment = process_environment();
  load.flags = options.flags;
  load.backends = options.backends;
  load.port = options.port;
  load.binary_dir = binary_dir();
  load.known_environment = {"ISOGATE_URL", "ISOGATE_KEY"};
  return load;
}

int report_config(const Error& error) {
  complain(error.message);
  advise("`isogate config docs` explains every setting.");
  return kFailed;
}

}  // namespace isogate::cli
