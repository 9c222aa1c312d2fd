#include "gateway/cli/effective_config.h"

#include "gateway/cli/cli.h"
#include "gateway/cli/output.h"

namespace isogate::cli {

LoadOptions load_options(const ConfigOptions& options) {
  LoadOptions load;
  load.file = options.file;
  load.environment = process_environment();
  load.flags = options.flags;
  load.backends = options.backends;
  load.port = options.port;
  load.known_environment = {"ISOGATE_URL", "ISOGATE_KEY", "ISOGATE_CA_FILE", "ISOGATE_CERT_FILE",
                            "ISOGATE_CERT_KEY_FILE"};
  return load;
}

int report_config(const Error& error) {
  complain(error.message);
  advise("`isogate config docs` explains every setting.");
  return kFailed;
}

}  // namespace isogate::cli
