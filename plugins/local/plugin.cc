#include <unistd.h>

#include "plugins/local/abi.h"
#include "plugins/local/local.h"
#include "plugins/local/privileges.h"

struct isogate_backend {
  std::unique_ptr<isogate::local::Backend> it;
};

struct isogate_sandbox {
  std::unique_ptr<isogate::local::Sandbox> it;
};

namespace isogate::local {
namespace {

isogate_status create(const isogate_host* host, isogate_str config_json, isogate_backend** out,
                      isogate_error* error) {
  return guarded(error, [&]() -> Result<void> {
    auto backend = Backend::create(taken(host), view(config_json));
    if (!backend) return backend.error();
    *out = new isogate_backend{std::move(*backend)};
    return {};
  });
}

void destroy(isogate_backend* backend) { delete backend; }

isogate_status probe(isogate_backend* backend, const isogate_call*, isogate_probe* out,
                     isogate_error* error) {
  return guarded(error, [&]() -> Result<void> {
    hand_out(out, backend->it->probe());
    return {};
  });
}

isogate_status open(isogate_backend* backend, const isogate_call*, const isogate_sandbox_spec* spec,
                    isogate_sandbox** out, isogate_sandbox_info* info, isogate_error* error) {
  return guarded(error, [&]() -> Result<void> {
    isogate_sandbox_info answer{};
    auto sandbox = backend->it->open(taken(spec), answer);
    if (!sandbox) return sandbox.error();
    *out = new isogate_sandbox{std::move(*sandbox)};
    hand_out(info, answer);
    return {};
  });
}

isogate_status close(isogate_sandbox* sandbox, const isogate_call* call, uint32_t mode,
                     isogate_error* error) {
  return guarded(error, [&]() -> Result<void> {
    auto closed = sandbox->it->close(mode, taken(call).cancel_fd);
    if (closed) delete sandbox;
    return closed;
  });
}

isogate_status enumerate(isogate_backend* backend, const isogate_call*, const isogate_record_sink* sink,
                         isogate_error* error) {
  return guarded(error, [&] { return backend->it->enumerate(*sink); });
}

isogate_status exec(isogate_sandbox* sandbox, const isogate_call* call, const isogate_exec_request* request,
                    isogate_exec_result* result, isogate_error* error) {
  return guarded(error, [&]() -> Result<void> {
    auto done = sandbox->it->exec(taken(call), taken(request));
    if (!done) return done.error();
    hand_out(result, *done);
    return {};
  });
}

// Runs one file verb on the workspace as the request's user.
template <typename Verb>
isogate_status with_files(isogate_sandbox* sandbox, const isogate_file_request* request, isogate_error* error,
                          Verb verb) {
  return guarded(error, [&]() -> Result<void> {
    const isogate_file_request known = taken(request);
    std::unique_ptr<Workspace> other;
    auto files = sandbox->it->files(known.user, other);
    if (!files) return files.error();
    return verb(**files, known);
  });
}

isogate_status read(isogate_sandbox* sandbox, const isogate_call* call, const isogate_file_request* request,
                    isogate_entry* entry, isogate_error* error) {
  return with_files(sandbox, request, error,
                    [&](Workspace& files, const isogate_file_request& known) -> Result<void> {
                      auto done = files.read(known, taken(call).cancel_fd);
                      if (!done) return done.error();
                      hand_out(entry, *done);
                      return {};
                    });
}

isogate_status write(isogate_sandbox* sandbox, const isogate_call* call, const isogate_file_request* request,
                     uint64_t* written, isogate_error* error) {
  return with_files(sandbox, request, error,
                    [&](Workspace& files, const isogate_file_request& known) -> Result<void> {
                      auto done = files.write(known, taken(call).cancel_fd);
                      if (!done) return done.error();
                      *written = *done;
                      return {};
                    });
}

isogate_status list(isogate_sandbox* sandbox, const isogate_call* call, const isogate_file_request* request,
                    const isogate_entry_sink* sink, isogate_error* error) {
  return with_files(sandbox, request, error, [&](Workspace& files, const isogate_file_request& known) {
    return files.list(known, *sink, taken(call).cancel_fd);
  });
}

isogate_status stat(isogate_sandbox* sandbox, const isogate_call*, const isogate_file_request* request,
                    isogate_entry* entry, isogate_error* error) {
  return with_files(sandbox, request, error,
                    [&](Workspace& files, const isogate_file_request& known) -> Result<void> {
                      auto done = files.stat(known);
                      if (!done) return done.error();
                      hand_out(entry, *done);
                      return {};
                    });
}

isogate_status mkdir(isogate_sandbox* sandbox, const isogate_call*, const isogate_file_request* request,
                     isogate_error* error) {
  return with_files(sandbox, request, error,
                    [](Workspace& files, const isogate_file_request& known) { return files.mkdir(known); });
}

isogate_status move(isogate_sandbox* sandbox, const isogate_call*, const isogate_file_request* request,
                    isogate_error* error) {
  return with_files(sandbox, request, error,
                    [](Workspace& files, const isogate_file_request& known) { return files.move(known); });
}

isogate_status remove(isogate_sandbox* sandbox, const isogate_call* call, const isogate_file_request* request,
                      isogate_error* error) {
  return with_files(sandbox, request, error, [&](Workspace& files, const isogate_file_request& known) {
    return files.remove(known, taken(call).cancel_fd);
  });
}

isogate_status evidence(isogate_sandbox* sandbox, const isogate_call*, const isogate_evidence_request*,
                        isogate_evidence* out, isogate_error* error) {
  return guarded(error, [&]() -> Result<void> {
    auto measured = sandbox->it->evidence();
    if (!measured) return measured.error();
    hand_out(out, *measured);
    return {};
  });
}

constexpr isogate_backend_api kApi = {
    sizeof(isogate_backend_api),
    0,
    create,
    destroy,
    probe,
    open,
    close,
    enumerate,
    exec,
    read,
    write,
    list,
    stat,
    mkdir,
    move,
    remove,
    evidence,
    nullptr,
};

constexpr isogate_plugin kPlugin = {
    ISOGATE_ABI_MAGIC,
    ISOGATE_ABI_MAJOR,
    0,
    sizeof(isogate_plugin),
    ISOGATE_PLUGIN_RUNS_AS_ROOT,
    ISOGATE_ISOLATION_NONE,
    ISOGATE_LOCALITY_PROCESS,
    ISOGATE_CAP_PTY | ISOGATE_CAP_USER | ISOGATE_CAP_LIMIT_MEMORY | ISOGATE_CAP_LIMIT_CPU |
        ISOGATE_CAP_LIMIT_PIDS | ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_UID_PER_SANDBOX |
        ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_EVIDENCE,
    kept_capabilities(),
    "local",
    ISOGATE_VERSION,
    "programs of this host, without isolation: for development",
    "isogate",
    "Apache-2.0",
    kConfigSchema,
    &kApi,
};

}  // namespace
}  // namespace isogate::local

extern "C" __attribute__((visibility("default"))) const isogate_plugin* isogate_plugin_entry(
    uint32_t host_major, uint32_t) {
  return host_major == ISOGATE_ABI_MAJOR ? &isogate::local::kPlugin : nullptr;
}
