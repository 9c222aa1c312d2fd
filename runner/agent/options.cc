#include "runner/agent/options.h"

#include <sys/un.h>

#include <string_view>

#include "lib/text.h"

namespace isogate::agent {
namespace {

struct Mapped {
  std::string_view name;
  std::string Options::*value;
};
constexpr Mapped kOptions[] = {
    {"--workspace", &Options::workspace}, {"--shell", &Options::shell},
    {"--toolchain", &Options::toolchain}, {"--user-name", &Options::user_name},
    {"--listener", &Options::listener},   {"--server", &Options::server},
    {"--scratch", &Options::scratch},
};

struct Named {
  std::string_view name;
  Mode mode;
};
constexpr Named kModes[] = {{"dial", Mode::dial},        {"stdio", Mode::stdio}, {"serve", Mode::serve},
                            {"attach", Mode::attach},    {"idle", Mode::idle},   {"version", Mode::version},
                            {"install", Mode::install},  {"names", Mode::names}, {"reach", Mode::reach},
                            {"syscalls", Mode::syscalls}};

Result<void> take_shared(Options& options, std::string_view value) {
  const size_t equals = value.find('=');
  if (equals == 0 || equals == std::string_view::npos || !value.substr(equals + 1).starts_with('/'))
    return invalid("--shared must be PREFIX=/DIR");
  options.shared.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  return {};
}

Result<void> take_disk_limit(Options& options, std::string_view value) {
  const auto bytes = number_in<uint64_t>(value);
  if (!bytes) return invalid("--disk-limit must be a number of bytes");
  options.disk_limit = *bytes;
  return {};
}

Result<void> take_disk_bound(Options& options, std::string_view value) {
  for (const auto& [name, bound] :
       {std::pair("counted", DiskBound::counted), std::pair("kernel", DiskBound::kernel),
        std::pair("volume", DiskBound::volume)}) {
    if (value != name) continue;
    options.disk_bound = bound;
    return {};
  }
  return invalid("--disk-bound must be counted, kernel or volume");
}

Result<void> take_option(Options& options, std::string_view name, const char* value) {
  if (name == "--shared" && value != nullptr) return take_shared(options, value);
  if (name == "--disk-limit" && value != nullptr) return take_disk_limit(options, value);
  if (name == "--disk-bound" && value != nullptr) return take_disk_bound(options, value);
  for (const Mapped& option : kOptions) {
    if (option.name != name) continue;
    if (value == nullptr) return invalid("option " + std::string(name) + " needs a value");
    options.*option.value = value;
    return {};
  }
  return invalid("unknown option `" + std::string(name) + "`");
}

Result<void> check(const Options& options) {
  if (options.mode == Mode::dial && options.socket.empty()) return invalid("dial needs the path of a socket");
  if (options.socket.size() >= sizeof sockaddr_un{}.sun_path)
    return invalid("the path of the socket is longer than " +
                   std::to_string(sizeof sockaddr_un{}.sun_path - 1) + " bytes");
  if (options.listener.empty() || options.listener.size() >= sizeof sockaddr_un{}.sun_path)
    return invalid("--listener must be a name of 1 to " + std::to_string(sizeof sockaddr_un{}.sun_path - 1) +
                   " bytes");
  if (options.mode == Mode::install && options.operands.size() != 1)
    return invalid("install needs one directory");
  if (options.mode == Mode::names && options.operands.size() != 2)
    return invalid("names needs two files, for passwd and for group");
  if (!options.scratch.empty() && !options.scratch.starts_with('/'))
    return invalid("--scratch must be an absolute path");
  if (!options.workspace.starts_with('/')) return invalid("--workspace must be an absolute path");
  return {};
}

}  // namespace

Result<Options> parse_options(int argc, char** argv) {
  Options options;
  int at = 1;
  bool known = false;
  for (const Named& mode : kModes) {
    if (argc < 2 || mode.name != argv[1]) continue;
    options.mode = mode.mode;
    known = true;
  }
  if (!known) return invalid("name one of dial, stdio, serve, attach, idle, install, names, reach, version");
  ++at;
  if (options.mode == Mode::dial && at < argc && argv[at][0] != '-') options.socket = argv[at++];
  if (options.mode == Mode::install || options.mode == Mode::names || options.mode == Mode::reach)
    while (at < argc) options.operands.emplace_back(argv[at++]);
  for (; at < argc; at += 2) {
    auto taken = take_option(options, argv[at], at + 1 < argc ? argv[at + 1] : nullptr);
    if (!taken) return taken.error();
  }
  if (auto checked = check(options); !checked) return checked.error();
  return options;
}

std::string usage() {
  return "usage: isogate-runner dial PATH [option…]   serves the gateway that listens at PATH, for ever\n"
         "       isogate-runner stdio [option…]       serves one connection on its input and output\n"
         "       isogate-runner serve [option…]       serves those that attach, for ever: a container's "
         "first process\n"
         "       isogate-runner attach [option…]      gives its input and output to the `serve` beside it\n"
         "       isogate-runner idle                  only reaps: the first process of a container\n"
         "       isogate-runner install DIR           puts itself there, mode 0111\n"
         "       isogate-runner names PASSWD GROUP    writes those of its container, with a line for its "
         "user\n"
         "       isogate-runner reach TARGET…         reports which ADDRESS:PORT answers; hop: the first "
         "hops\n"
         "       isogate-runner syscalls              reports which calls its profile should refuse and does "
         "not\n"
         "       isogate-runner version\n"
         "options: --workspace DIR (/workspace)  --shared PREFIX=DIR  --shell PATH (/bin/sh)\n"
         "         --toolchain PATH  --user-name NAME  --listener NAME (isogate-runner)  --server PID (1)\n"
         "         --scratch DIR  --disk-limit BYTES  --disk-bound counted|kernel|volume (counted)\n";
}

}  // namespace isogate::agent
