#include "gateway/config/settings_rows.h"

namespace isogate {
namespace {

constexpr Choice kLimitModes[] = {{"enforce", 0}, {kBestEffort, 1}};
constexpr Choice kEgress[] = {{"default", ISOGATE_EGRESS_UNSET},
                              {"deny", ISOGATE_EGRESS_DENY},
                              {"proxy", ISOGATE_EGRESS_PROXY},
                              {"allow", ISOGATE_EGRESS_ALLOW}};

const Setting kBackends[] = {
    {.path = "backends",
     .field = FIELD(Config, backends),
     .brief = "The backends, in the order of preference.",
     .details =
         "Selection takes the first that is eligible and proves itself. As a variable or flag: names, which "
         "choose and order the configured backends; a name that is not configured is a backend of that "
         "plugin without settings.",
     .fallback = "namespace, then local; local stays ineligible until `allow_unisolated: true`"},
};

const Setting kKey[] = {
    {.path = "name",
     .field = FIELD(KeyConfig, name),
     .brief = "The key's name in the log.",
     .details = "",
     .grammar = &kTenant,
     .required = true},
    {.path = "tenant",
     .field = FIELD(KeyConfig, tenant),
     .brief = "Whom the key stands for: tenants never see each other's sandboxes.",
     .details = "",
     .grammar = &kTenant,
     .required = true},
    {.path = "sha256",
     .field = FIELD(KeyConfig, sha256),
     .brief = "SHA-256 of the key, from `isogate key hash`.",
     .details = "",
     .grammar = &kKeyHash,
     .required = true},
};

const Setting kTlsClient[] = {
    {.path = "name",
     .field = FIELD(TlsClientConfig, name),
     .brief = "The certificate's name in the log.",
     .details = "",
     .grammar = &kTenant,
     .required = true},
    {.path = "tenant",
     .field = FIELD(TlsClientConfig, tenant),
     .brief = "Whom it stands for.",
     .details = "",
     .grammar = &kTenant,
     .required = true},
    {.path = "san",
     .field = FIELD(TlsClientConfig, san),
     .brief = "The subject alternative name that the certificate must have.",
     .details =
         "`DNS:…`, `URI:…`, `email:…` or `IP:…`, whole, without wildcards; the common name is not read.",
     .grammar = &kSan,
     .required = true},
};

const Setting kSharedDir[] = {
    {.path = "prefix",
     .field = FIELD(SharedDirConfig, prefix),
     .brief = "The prefix of the paths that mean this directory.",
     .details = "",
     .grammar = &kPrefix,
     .required = true},
    {.path = "path",
     .field = FIELD(SharedDirConfig, path),
     .brief = "The directory on this host.",
     .details = "",
     .grammar = &kAbsolutePath,
     .required = true},
};

const Setting kBackend[] = {
    {.path = "name",
     .field = FIELD(BackendConfig, name),
     .brief = "Unique; what a request's `backend` names.",
     .details = "",
     .grammar = &kName,
     .required = true},
    {.path = "plugin",
     .field = FIELD(BackendConfig, plugin),
     .brief = "The plugin: the name of a file in `plugin_dir` without .so, or an absolute path.",
     .details = "",
     .grammar = &kPluginName,
     .may_be_empty = true,
     .fallback = "the backend's name"},
    {.path = "sha256",
     .field = FIELD(BackendConfig, sha256),
     .brief = "Pin: the plugin file must have this SHA-256.",
     .details = "Empty: no pin.",
     .grammar = &kSha256,
     .may_be_empty = true},
    {.path = "run_as",
     .field = FIELD(BackendConfig, run_as),
     .brief = "The user that this backend's host becomes when the gateway was started by root.",
     .details = "Never root: a backend that needs root's capabilities says so itself, and keeps those and "
                "nothing else.",
     .grammar = &kUserName},
    {.path = "groups",
     .field = FIELD(BackendConfig, groups),
     .brief = "Supplementary groups of that host, for the socket of an engine.",
     .details = "",
     .grammar = &kUserName},
    {.path = "users",
     .field = FIELD(BackendConfig, users),
     .brief = "Users, by name or number, that a request's `user` may ask for.",
     .details = "Of a backend whose programs run on this host they are users of this host. root only when it "
                "is named "
                "here; that is a relaxation.",
     .grammar = &kRequestUser},
    {.path = "limits.memory_mb",
     .field = FIELD(BackendConfig, sandbox_limits.memory_bytes),
     .brief = "Memory of a sandbox in MiB, swap included; 0: not limited.",
     .details = "",
     .most = 1 << 24,
     .scale = 1 << 20},
    {.path = "limits.cpu_percent",
     .field = FIELD(BackendConfig, sandbox_limits.cpu_millis),
     .brief = "CPU of a sandbox, 100 is one processor; 0: not limited.",
     .details = "",
     .most = 1000000,
     .scale = 10},
    {.path = "limits.max_pids",
     .field = FIELD(BackendConfig, sandbox_limits.pids),
     .brief = "Processes and threads of a sandbox; 0: not limited.",
     .details = "An init that the backend runs beside each exec counts.",
     .most = 4194304},
    {.path = "limits.disk_mb",
     .field = FIELD(BackendConfig, sandbox_limits.disk_bytes),
     .brief = "Workspace and scratch of a sandbox in MiB; 0: not limited.",
     .details =
         "No backend enforces it today: one that is asked for it is not chosen, or, with `best_effort`, "
         "leaves it out.",
     .most = 1 << 30,
     .scale = 1 << 20},
    {.path = "limits.mode",
     .field = FIELD(BackendConfig, limits_best_effort),
     .brief = "`enforce`: a backend that cannot enforce them is not chosen. `best_effort`: it is.",
     .details = "A relaxation. `limits: best_effort` is short for `limits: {mode: best_effort}`.",
     .choices = kLimitModes},
    {.path = "egress",
     .field = FIELD(BackendConfig, egress),
     .brief = "Outbound network: `deny`, `proxy`, `allow`, or the backend's own `default`.",
     .details =
         "A backend that cannot give it is not chosen, and `GET /backends` says why. None of those that "
         "come with the gateway has a proxy.",
     .choices = kEgress},
    {.path = "config",
     .field = [](void* owner) -> Field { return AnyJson{&static_cast<BackendConfig*>(owner)->config_json}; },
     .brief = "The plugin's own settings; its JSON Schema rules them.",
     .details = "`isogate plugin describe` shows that schema."},
};

}  // namespace

std::span<const Setting> backends_row() { return kBackends; }
std::span<const Setting> key_settings() { return kKey; }
std::span<const Setting> tls_client_settings() { return kTlsClient; }
std::span<const Setting> shared_dir_settings() { return kSharedDir; }
std::span<const Setting> backend_settings() { return kBackend; }

}  // namespace isogate
