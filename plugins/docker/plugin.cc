#include "plugins/docker/backend.h"
#include "plugins/docker/container/profile.h"
#include "runner/exec/kept_capabilities.h"

namespace isogate::docker {
namespace {

// What this backend keeps of root, and why.
constexpr Kept kKept[] = {
    {0, "CHOWN", "give a new workspace to its sandbox's uid"},
    {1, "DAC_OVERRIDE", "purge what a tenant closed to everybody else, read a runner with mode 0111"},
    {3, "FOWNER", "purge from directories with the sticky bit"},
    {6, "SETGID", "make workspaces with the sandbox's gid"},
    {7, "SETUID", "make workspaces with the sandbox's uid"},
    {21, "SYS_ADMIN", "set project quotas, mount a file system of a sandbox's own"},
};

}  // namespace
}  // namespace isogate::docker

ISOGATE_EXPORT_BACKEND(isogate::docker::Backend, isogate::docker::Sandbox, .id = "docker",
                       .version = ISOGATE_VERSION, .summary = "a container of a Docker Engine for each agent",
                       .vendor = "isogate", .license = "Apache-2.0", .isolation = ISOGATE_ISOLATION_CONTAINER,
                       .locality = ISOGATE_LOCALITY_DAEMON,
                       .capabilities = isogate::docker::kAlways | ISOGATE_CAP_KEPT_EXECS |
                                       ISOGATE_CAP_EGRESS_DENY | ISOGATE_CAP_UID_PER_SANDBOX |
                                       isogate::sandbox_limits(isogate::docker::kLimited) |
                                       ISOGATE_CAP_SANDBOX_DISK_ADVISORY,
                       .flags = ISOGATE_PLUGIN_RUNS_AS_ROOT,
                       .linux_capabilities = isogate::bits_of(isogate::docker::kKept),
                       .config_schema_json = isogate::docker::kConfigSchema)
