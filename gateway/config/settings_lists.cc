#include <iterator>
#include <utility>

#include "gateway/config/settings_rows.h"

namespace isogate {

// The only backends that gateway/config names, here and in the row's `fallback`.
const std::vector<std::string> kDefaultBackends = {"namespace", "local"};

namespace {

constexpr Choice kLimitModes[] = {{"enforce", 0}, {kBestEffort, 1}};
constexpr Choice kExecLimitModes[] = {{"enforce", 0}, {"sampled", 1}};
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
     .grammar = &kTenant,
     .required = true},
    {.path = "tenant",
     .field = FIELD(KeyConfig, tenant),
     .brief = "The tenant of the key: tenants never see each other's sandboxes.",
     .grammar = &kTenant,
     .required = true},
    {.path = "sha256",
     .field = FIELD(KeyConfig, sha256),
     .brief = "SHA-256 of the key, as `isogate key new` or `isogate key hash` prints it.",
     .grammar = &kKeyHash,
     .required = true},
};

const Setting kTlsClient[] = {
    {.path = "name",
     .field = FIELD(TlsClientConfig, name),
     .brief = "The certificate's name in the log.",
     .grammar = &kTenant,
     .required = true},
    {.path = "tenant",
     .field = FIELD(TlsClientConfig, tenant),
     .brief = "The tenant of the certificate.",
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
     .grammar = &kPrefix,
     .required = true},
    {.path = "path",
     .field = FIELD(SharedDirConfig, path),
     .brief = "The directory on this host.",
     .grammar = &kAbsolutePath,
     .required = true},
};

const Setting kBackendNames[] = {
    {.path = "name",
     .field = FIELD(BackendConfig, name),
     .brief = "Unique; what a request's `backend` names.",
     .grammar = &kName,
     .required = true},
    {.path = "plugin",
     .field = FIELD(BackendConfig, plugin),
     .brief = "The plugin: the name of a file in `plugin_dir` without .so, or an absolute path.",
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
     .brief = "The user that the backend host becomes when the gateway was started by root.",
     .details = "Never root: a backend that needs root's capabilities declares them, and keeps those and "
                "nothing else; this has no effect there.",
     .grammar = &kUserName},
    {.path = "groups",
     .field = FIELD(BackendConfig, groups),
     .brief = "Supplementary groups of that backend host, for the socket of an Engine.",
     .details =
         "As `run_as` they have no effect where the plugin declares that it needs root, which "
         "`isogate plugin describe` shows, or where an ordinary user starts the gateway. The group must "
         "exist.",
     .grammar = &kUserName},
    {.path = "users",
     .field = FIELD(BackendConfig, users),
     .brief = "Users, by name or number, that a request's `user` may ask for.",
     .details = "If the backend runs programs on this host, these are users of this host. `root` is admitted "
                "only if listed; that is a relaxation.",
     .grammar = &kRequestUser},
    {.path = "images",
     .field = FIELD(BackendConfig, images),
     .brief = "Images that `POST /sandboxes` may name in place of the backend's own.",
     .details =
         "Names as the Engine or the cluster knows them, `team/*` for all that begin so, `python:*` for all "
         "tags, `*` for any. "
         "Without this setting every sandbox has the backend's own image.",
     .grammar = &kImagePattern},
};

const Setting kBackendModes[] = {
    {.path = "limits.mode",
     .field = FIELD(BackendConfig, limits_best_effort),
     .brief = "`enforce`: a backend that cannot enforce them is not chosen. `best_effort`: it is.",
     .details = "A relaxation. `limits: best_effort` is short for `limits: {mode: best_effort}`.",
     .choices = kLimitModes},
    {.path = "limits.exec",
     .field = FIELD(BackendConfig, exec_limits_sampled),
     .brief =
         "The limits of one exec (`cgroup` in a request). `enforce`: the kernel enforces them, or the "
         "request gets 501. `sampled`: where the kernel cannot enforce them, the backend's runner measures "
         "what the exec uses every 10 ms, and ends it or slows it down.",
     .details =
         "A relaxation: between two measurements a program may use more, up to the limits of its sandbox. "
         "Backends that run commands in containers or pods can only sample, and so can one on this host "
         "without cgroups.",
     .choices = kExecLimitModes},
    {.path = "egress",
     .field = FIELD(BackendConfig, egress),
     .brief = "Outbound network: `deny`, `proxy`, `allow`, or the backend's own `default`.",
     .details = "A backend that cannot give it is not chosen, and `GET /backends` gives the reason. None of "
                "those that "
                "come with the gateway has a proxy.",
     .choices = kEgress},
    {.path = "config",
     .field = [](void* owner) -> Field { return AnyJson{&owner_at<BackendConfig>(owner).config_json}; },
     .brief = "The plugin's own settings; they must fit its JSON Schema.",
     .details = "`isogate plugin describe` shows that schema."},
};

template <size_t Row>
Field limit_field(void* owner) {
  return &owner_at<BackendConfig>(owner).sandbox_limits.at_row(Row);
}

Range range_of(const LimitKind& kind) {
  return {kind.least > 1 ? static_cast<double>(kind.least) : 0, static_cast<double>(kind.most)};
}

template <size_t... Row>
std::vector<Setting> limit_settings(std::index_sequence<Row...>) {
  static const std::string paths[] = {std::string("limits.") + kLimitKinds[Row].setting...};
  return {Setting{.path = paths[Row],
                  .field = limit_field<Row>,
                  .brief = kLimitKinds[Row].sandbox_brief,
                  .details = kLimitKinds[Row].sandbox_details,
                  .range = range_of(kLimitKinds[Row]),
                  .or_zero = kLimitKinds[Row].least > 1,
                  .scale = kLimitKinds[Row].scale}...};
}

}  // namespace

std::span<const Setting> backends_row() { return kBackends; }
std::span<const Setting> key_settings() { return kKey; }
std::span<const Setting> tls_client_settings() { return kTlsClient; }
std::span<const Setting> shared_dir_settings() { return kSharedDir; }

std::span<const Setting> backend_settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> rows(std::begin(kBackendNames), std::end(kBackendNames));
    const auto limits = limit_settings(std::make_index_sequence<kLimitKindCount>());
    rows.insert(rows.end(), limits.begin(), limits.end());
    rows.insert(rows.end(), std::begin(kBackendModes), std::end(kBackendModes));
    return rows;
  }();
  return all;
}

}  // namespace isogate
