#include "plugins/namespace/namespace.h"
#include "plugins/namespace/privileges.h"

ISOGATE_EXPORT_BACKEND(
    isogate::ns::Backend, isogate::ns::Sandbox, .id = "namespace", .version = ISOGATE_VERSION,
    .summary = "programs of this host in Linux namespaces, one user per sandbox", .vendor = "isogate",
    .license = "Apache-2.0", .isolation = ISOGATE_ISOLATION_NAMESPACE, .locality = ISOGATE_LOCALITY_HOST,
    .capabilities = ISOGATE_CAP_PTY | ISOGATE_CAP_MERGE_STDERR | ISOGATE_CAP_WATCH | ISOGATE_CAP_PORTS |
                    ISOGATE_CAP_USER | isogate::exec_limits(isogate::ns::kLimited) |
                    isogate::sandbox_limits(isogate::ns::kLimited) | ISOGATE_CAP_SANDBOX_DISK_ADVISORY |
                    ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_EGRESS_DENY | ISOGATE_CAP_UID_PER_SANDBOX |
                    ISOGATE_CAP_PERSISTENT | ISOGATE_CAP_EVIDENCE | ISOGATE_CAP_PROVEN_EXECS,
    .flags = ISOGATE_PLUGIN_RUNS_AS_ROOT, .linux_capabilities = isogate::bits_of(isogate::ns::kKept),
    .config_schema_json = isogate::ns::kConfigSchema)
