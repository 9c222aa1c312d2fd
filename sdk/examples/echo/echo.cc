// The smallest useful backend: it runs `echo`, inside its own process, and has no files.
#include "isogate/backend.hpp"

namespace sdk = isogate::sdk;

class EchoSandbox final : public sdk::Sandbox {
 public:
  void exec(const sdk::Call& call, const isogate_exec_request& request,
            isogate_exec_result& result) override {
    call.check();
    sdk::check_limits(sdk::limits_of(request), {});
    const std::string name(sdk::view(request.argv[0]));
    if (name != "echo") {
      (void)call.write_all(request.stderr_fd,
                           "isogate: cannot run `" + name + "`: No such file or directory\n");
      result.flags = ISOGATE_RESULT_NOT_STARTED;
      result.exit_code = 127;
      result.os_errno = ENOENT;
      return;
    }
    std::string line;
    for (uint64_t i = 1; i < request.argc; ++i)
      line.append(i > 1 ? " " : "").append(sdk::view(request.argv[i]));
    if (!call.write_all(request.stdout_fd, line + "\n")) result.flags = ISOGATE_RESULT_KILLED;
  }
};

// Nothing of it outlives its process, so attach() stays: there is nothing to attach to.
class EchoBackend final : public sdk::Backend {
 public:
  EchoBackend(sdk::Host, std::string_view) {}
  void probe(const sdk::Call&, isogate_probe& probe) override {
    probe.verdict = ISOGATE_PROBE_AVAILABLE;
    probe.locality = ISOGATE_LOCALITY_PROCESS;
  }
  std::unique_ptr<sdk::Sandbox> open(const sdk::Call&, const isogate_sandbox_spec& spec,
                                     isogate_sandbox_info&) override {
    if ((spec.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) == 0) sdk::check_limits(sdk::limits_of(spec), {});
    if (spec.option_count != 0) throw sdk::Error(ISOGATE_UNSUPPORTED, "echo takes no options of a sandbox");
    return std::make_unique<EchoSandbox>();
  }
};

ISOGATE_EXPORT_BACKEND(EchoBackend, EchoSandbox, .id = "com.example.echo", .version = "1.0.0",
                       .summary = "echoes")
