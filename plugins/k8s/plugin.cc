#include "plugins/k8s/backend.h"
#include "plugins/k8s/config_schema.h"
#include "plugins/k8s/pod/profile.h"

ISOGATE_EXPORT_BACKEND(isogate::k8s::Backend, isogate::k8s::Sandbox, .id = "k8s", .version = ISOGATE_VERSION,
                       .summary = "a pod of a Kubernetes cluster for each agent", .vendor = "isogate",
                       .license = "Apache-2.0", .isolation = ISOGATE_ISOLATION_VM,
                       .locality = ISOGATE_LOCALITY_CLUSTER,
                       .capabilities = isogate::k8s::kAlways | ISOGATE_CAP_WATCH | ISOGATE_CAP_PORTS |
                                       ISOGATE_CAP_KEPT_EXECS | ISOGATE_CAP_IMAGE | ISOGATE_CAP_EGRESS_DENY |
                                       ISOGATE_CAP_PERSISTENT |
                                       isogate::sandbox_limits(isogate::k8s::kLimited),
                       .config_schema_json = isogate::k8s::kConfigSchema)
