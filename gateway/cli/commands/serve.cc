// isogate serve
#include "gateway/supervisor/supervisor.h"

#include "gateway/cli/cli.h"
#include "gateway/cli/effective_config.h"
#include "gateway/cli/output.h"
#include "lib/log.h"

namespace isogate::cli {

int run_serve(const ConfigOptions& options) {
  auto loaded = load_config(load_options(options));
  if (!loaded.ok()) return report_config(loaded.error());
  const Config& config = loaded->config;
  if (auto started = log::start("supervisor", config.log.level, config.log.file); !started.ok()) {
    complain(started.error().message);
    return kFailed;
  }
  ServeOptions serve;
  serve.config_path = loaded->file;
  serve.warnings = loaded->warnings;
  serve.relaxations = loaded->relaxations;
  serve.places = loaded->places;
  serve.reload = [options] {
    LoadOptions again = load_options(options);
    again.reload = true;
    return load_config(again);
  };
  return supervisor_main(config, serve);
}

}  // namespace isogate::cli
