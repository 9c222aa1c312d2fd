#include <cstdio>

#include "runner/resident/attach.h"
#include "runner/resident/install.h"
#include "runner/resident/options.h"
#include "runner/resident/reach.h"
#include "runner/resident/service.h"
#include "runner/syscall_check.h"

int main(int argc, char** argv) {
  using namespace isogate::resident;
  const auto options = parse_options(argc, argv);
  if (!options) {
    std::fprintf(stderr, "isogate-runner: %s\n%s", options.error().message.c_str(), usage().c_str());
    return 2;
  }
  if (options->mode == Mode::version) {
    std::printf("isogate-runner %s, protocol %u.%u\n", ISOGATE_VERSION, ISOGATE_RUNNER_MAJOR,
                ISOGATE_RUNNER_MINOR);
    return 0;
  }
  if (options->mode == Mode::reach) return report_reached(options->operands);
  if (options->mode == Mode::syscalls) return isogate::report_open_syscalls();
  if (options->mode == Mode::attach) {
    const auto attached = attach(*options);
    if (!attached) std::fprintf(stderr, "isogate-runner: %s\n", attached.error().message.c_str());
    return attached ? 0 : 1;
  }
  if (options->mode == Mode::install) {
    const auto installed = install_into(options->operands[0]);
    if (!installed) std::fprintf(stderr, "isogate-runner: %s\n", installed.error().message.c_str());
    return installed ? 0 : 1;
  }
  Service service;
  if (auto opened = service.open(*options); !opened) {
    std::fprintf(stderr, "isogate-runner: %s\n", opened.error().message.c_str());
    return 1;
  }
  return service.run();
}
