#include "plugins/common/plugin_verbs.h"
#include "plugins/namespace/namespace.h"
#include "plugins/namespace/privileges.h"

namespace isogate::ns {
namespace {

constexpr isogate_backend_api kApi = backend_api<Backend, Sandbox>();

constexpr isogate_plugin kPlugin = {
    ISOGATE_ABI_MAGIC,
    ISOGATE_ABI_MAJOR,
    0,
    sizeof(isogate_plugin),
    ISOGATE_PLUGIN_RUNS_AS_ROOT,
    ISOGATE_ISOLATION_NAMESPACE,
    ISOGATE_LOCALITY_HOST,
    ISOGATE_CAP_PTY | ISOGATE_CAP_MERGE_STDERR | ISOGATE_CAP_WATCH | ISOGATE_CAP_PORTS | ISOGATE_CAP_USER |
        ISOGATE_CAP_LIMIT_MEMORY | ISOGATE_CAP_LIMIT_CPU | ISOGATE_CAP_LIMIT_PIDS |
        ISOGATE_CAP_SANDBOX_LIMIT_MEMORY | ISOGATE_CAP_SANDBOX_LIMIT_CPU | ISOGATE_CAP_SANDBOX_LIMIT_PIDS |
        ISOGATE_CAP_SANDBOX_LIMIT_DISK | ISOGATE_CAP_SANDBOX_DISK_ADVISORY | ISOGATE_CAP_SCOPE_SANDBOX |
        ISOGATE_CAP_EGRESS_DENY | ISOGATE_CAP_UID_PER_SANDBOX | ISOGATE_CAP_PERSISTENT |
        ISOGATE_CAP_EVIDENCE | ISOGATE_CAP_PROVEN_EXECS,
    bits_of(kKept),
    "namespace",
    ISOGATE_VERSION,
    "programs of this host in Linux namespaces, one user per sandbox",
    "isogate",
    "Apache-2.0",
    kConfigSchema,
    &kApi,
};

}  // namespace
}  // namespace isogate::ns

extern "C" __attribute__((visibility("default"))) const isogate_plugin* isogate_plugin_entry(
    uint32_t host_major, uint32_t) {
  return host_major == ISOGATE_ABI_MAJOR ? &isogate::ns::kPlugin : nullptr;
}
