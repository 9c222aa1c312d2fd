#include "plugins/docker/backend.h"
#include "plugins/docker/privileges.h"

ISOGATE_EXPORT_BACKEND(isogate::docker::Backend, .id = "docker", .version = ISOGATE_VERSION,
                       .summary = "a container of a Docker Engine for each agent", .vendor = "isogate",
                       .license = "Apache-2.0", .isolation = ISOGATE_ISOLATION_CONTAINER,
                       .locality = ISOGATE_LOCALITY_DAEMON,
                       .capabilities = ISOGATE_CAP_PTY | ISOGATE_CAP_SCOPE_SANDBOX | ISOGATE_CAP_EGRESS_DENY |
                                       ISOGATE_CAP_UID_PER_SANDBOX | ISOGATE_CAP_PERSISTENT |
                                       ISOGATE_CAP_EVIDENCE,
                       .flags = ISOGATE_PLUGIN_RUNS_AS_ROOT,
                       .linux_capabilities = isogate::bits_of(isogate::docker::kKept),
                       .config_schema_json = isogate::docker::kConfigSchema)
