#include "gateway/config/settings_table.h"

#include <algorithm>

// The field of an owner: FIELD(Config, limits.max_execs).
#define FIELD(Owner, member) [](void* owner) -> Field { return &static_cast<Owner*>(owner)->member; }

namespace isogate {

const std::vector<std::string> kDefaultBackends = {"namespace", "local"};

namespace {

constexpr Choice kIsolations[] = {{"none", ISOGATE_ISOLATION_NONE},
                                  {"namespace", ISOGATE_ISOLATION_NAMESPACE},
                                  {"container", ISOGATE_ISOLATION_CONTAINER},
                                  {"vm", ISOGATE_ISOLATION_VM}};
constexpr Choice kAnonymous[] = {{"never"}, {"loopback"}};
constexpr Choice kClientAuth[] = {{"required"}, {"optional"}};
constexpr Choice kOnShutdown[] = {{"remove", 0}, {"keep", 1}};
constexpr Choice kLogLevels[] = {{"debug"}, {"info"}, {"warn"}, {"error"}};
constexpr Choice kLimitModes[] = {{"enforce", 0}, {kBestEffort, 1}};
constexpr Choice kEgress[] = {{"default", ISOGATE_EGRESS_UNSET},
                              {"deny", ISOGATE_EGRESS_DENY},
                              {"proxy", ISOGATE_EGRESS_PROXY},
                              {"allow", ISOGATE_EGRESS_ALLOW}};

constexpr double kMiB = 1 << 20, kGiB = 1 << 30, kDay = 86400, kYear = 366 * kDay;

const Setting kTop[] = {
    {.path = "listen",
     .field = FIELD(Config, listen),
     .brief = "Where the gateway listens.",
     .details =
         "HOST:PORT with a literal address or `localhost`, [V6]:PORT, or unix:/PATH; port 0 takes a free "
         "one. "
         "Over the Unix socket the gateway's own user and root need no key. A listener beyond loopback is "
         "refused without configured `keys` or `tls.clients`. With `tls` every address but a Unix socket "
         "speaks TLS and nothing else.",
     .grammar = &kListenAddress},
    {.path = "state_dir",
     .field = FIELD(Config, state_dir),
     .brief = "Where the gateway keeps its state: records, sandboxes, its own key.",
     .details =
         "Made with mode 0700, as root 0711, since its other users pass through to their parts. A start with "
         "wider modes is refused.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true,
     .fallback = "/var/lib/isogate for root, else $XDG_STATE_HOME/isogate or ~/.local/state/isogate"},
    {.path = "instance",
     .field = FIELD(Config, instance),
     .brief = "Name of this gateway among others that share an engine or a cluster.",
     .details = "Part of every sandbox's name: two gateways with different names never touch each other's "
                "sandboxes.",
     .grammar = &kName},
    {.path = "plugin_dir",
     .field = FIELD(Config, plugin_dir),
     .brief = "Where plugin files are found.",
     .details = "It and every parent must be writable by root or the gateway's user alone.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true,
     .fallback = "../plugins or ../lib/isogate/plugins from the program's directory, else /usr/lib/isogate/plugins"},
    {.path = "shell",
     .field = FIELD(Config, shell),
     .brief = "The shell that runs an exec's `command`.",
     .details = "A path inside the sandbox. `argv` is run without it.",
     .grammar = &kAbsolutePath},
    {.path = "workdir",
     .field = FIELD(Config, workdir),
     .brief = "Root of the sandboxes' files on this host.",
     .details = "Empty: `sandboxes` in `state_dir`.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true},
    {.path = "toolchain_path",
     .field = FIELD(Config, toolchain_path),
     .brief = "Directories in front of PATH for every exec, separated by `:`.",
     .details = "They must not overlap the gateway's own directories, nor lie in /proc, /sys, /dev or /run.",
     .grammar = &kSearchPath,
     .may_be_empty = true,
     .historical = "TOOLCHAIN_PATH"},
    {.path = "shared_dirs",
     .field = FIELD(Config, shared_dirs),
     .brief = "Directories of this host that every sandbox may read under a prefix.",
     .details = "Read-only. As a variable or flag: `prefix:path,prefix:path`. They must not overlap the "
                "gateway's own "
                "directories or each other's prefix, nor lie in /proc, /sys, /dev or /run.",
     .historical = "SHARED_DIRS"},
    {.path = "multi_agent",
     .field = FIELD(Config, multi_agent),
     .brief = "Every call has to name its agent.",
     .details = "Without it a call that names none belongs to the agent `default`."},
    {.path = "require_remote",
     .field = FIELD(Config, require_remote),
     .brief = "Only backends that run commands behind an engine, in a cluster or behind another gateway.",
     .details =
         "Nothing ever runs on this host: when no such backend proves itself, calls answer "
         "`backend_unavailable` and the gateway stays up. The strictest source wins: what the file turns on, "
         "neither the environment nor a flag turns off. Refuses `allow_unisolated` and `anonymous: "
         "loopback`.",
     .historical = "REQUIRE_REMOTE"},
    {.path = "min_isolation",
     .field = FIELD(Config, min_isolation),
     .brief = "The least isolation a backend must have to be chosen.",
     .details = "A request may ask for more, never for less.",
     .choices = kIsolations},
    {.path = "allow_unisolated",
     .field = FIELD(Config, allow_unisolated),
     .brief = "Developer mode: a backend that isolates nothing may be chosen.",
     .details = "A relaxation, logged as a warning at every start. Commands then run on this host."},
    {.path = "anonymous",
     .field = FIELD(Config, anonymous),
     .brief = "Whether calls without a key are served: `never`, or from this machine over `loopback`.",
     .details =
         "`loopback` is a relaxation, logged at every start: any program and, but for the checks of Host and "
         "Origin, any web page on this machine could run commands. Refused under `require_remote`.",
     .choices = kAnonymous},
    {.path = "hosts",
     .field = FIELD(Config, hosts),
     .brief = "Names that a Host header may carry besides `localhost` and the bound address.",
     .details = "Only read with `anonymous: loopback`.",
     .grammar = &kHostName},
    {.path = "keys",
     .field = FIELD(Config, keys),
     .brief = "The API keys that are let in, as hashes.",
     .details = "Without any, the gateway makes one key for this machine at its first start, `local.key` in "
                "`state_dir`, and listens on loopback and Unix sockets only."},
    {.path = "tls.cert",
     .field = FIELD(Config, tls.cert),
     .brief = "The certificate, PEM, with its chain after it; empty: no TLS.",
     .details =
         "Read anew on SIGHUP: open connections stay, new ones get the new one; one that does not fit is "
         "logged and the old one stays. TLS 1.2 and 1.3, ALPN `http/1.1`. Every TCP address of `listen` then "
         "speaks TLS.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true},
    {.path = "tls.key",
     .field = FIELD(Config, tls.key),
     .brief = "Its private key, PEM, not encrypted.",
     .details =
         "Read by the supervisor before privileges are dropped, so root's alone is right. Refused when "
         "others may read it or group or others may write it.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true},
    {.path = "tls.client_ca",
     .field = FIELD(Config, tls.client_ca),
     .brief = "The certificate authorities, PEM, that client certificates are verified against; empty: none "
              "are asked for.",
     .details = "",
     .grammar = &kAbsolutePath,
     .may_be_empty = true},
    {.path = "tls.client_auth",
     .field = FIELD(Config, tls.client_auth),
     .brief = "Whether a client certificate is `required` for a connection, or `optional`.",
     .details = "Only read with `tls.client_ca`. One that does not verify ends the connection either way.",
     .choices = kClientAuth},
    {.path = "tls.clients",
     .field = FIELD(Config, tls.clients),
     .brief = "Whom client certificates stand for; the first entry that a certificate has decides.",
     .details = "A certificate without an entry opens the connection and nothing else: its requests need a "
                "key. A key that is sent wins over the certificate."},
    {.path = "tls.handshake_timeout_sec",
     .field = FIELD(Config, tls.handshake_timeout_sec),
     .brief = "Seconds from a connection's start to the end of its TLS handshake.",
     .details = "",
     .least = 1,
     .most = 3600},
    {.path = "cors.origins",
     .field = FIELD(Config, cors.origins),
     .brief = "Origins, SCHEME://HOST[:PORT], whose web pages may call this gateway from a browser.",
     .details = "Their preflights are answered and their answers may be read; they still need a key. Other "
                "pages get no permission.",
     .grammar = &kOrigin},
    {.path = "metrics.listen",
     .field = FIELD(Config, metrics.listen),
     .brief = "A listener of its own, HOST:PORT, for /metrics, /livez, /readyz and /healthz; empty: none.",
     .details = "It asks for no key, speaks plain HTTP and answers nothing else. Beyond loopback that is a "
                "relaxation. On the other listeners /metrics needs a key.",
     .grammar = &kListenAddress,
     .may_be_empty = true},
    {.path = "probe_interval_sec",
     .field = FIELD(Config, probe_interval_sec),
     .brief = "Seconds between two probes of a backend.",
     .details = "",
     .least = 1,
     .most = 3600},
    {.path = "drain_timeout_sec",
     .field = FIELD(Config, drain_timeout_sec),
     .brief = "Seconds that calls in flight get to end when the gateway stops or reloads.",
     .details = "What still runs then is killed.",
     .least = 0,
     .most = 3600},
    {.path = "on_shutdown",
     .field = FIELD(Config, keep_on_shutdown),
     .brief = "What becomes of the sandboxes when the gateway stops: `remove` or `keep`.",
     .details = "Workspaces stay either way.",
     .choices = kOnShutdown},
    {.path = "wait_for_sidecar",
     .field = FIELD(Config, wait_for_sidecar),
     .brief = "Another gateway, HOST:PORT, whose health is awaited before serving.",
     .details = "",
     .grammar = &kHostPort,
     .may_be_empty = true,
     .historical = "WAIT_FOR_SIDECAR"},
    {.path = "wait_for_sidecar_timeout_sec",
     .field = FIELD(Config, wait_for_sidecar_timeout_sec),
     .brief = "Seconds to wait for it; then the start fails.",
     .details = "",
     .least = 1,
     .most = kDay,
     .historical = "WAIT_FOR_SIDECAR_TIMEOUT"},
    {.path = "log.level",
     .field = FIELD(Config, log.level),
     .brief = "The least level that is logged.",
     .details = "",
     .choices = kLogLevels},
    {.path = "log.file",
     .field = FIELD(Config, log.file),
     .brief = "The log file; empty: stderr.",
     .details = "Opened for appending, and anew on SIGUSR1, after a rotation.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true},
    {.path = "log.access",
     .field = FIELD(Config, log.access),
     .brief = "Whether every request gets a line in the log: its id, route, status, bytes and stages.",
     .details = "Written at any level, a quarter of a second late at most."},
    {.path = "limits.max_connections",
     .field = FIELD(Config, limits.max_connections),
     .brief = "Connections at a time.",
     .details = "The next is answered 429 and closed. A quarter of the descriptors that RLIMIT_NOFILE allows "
                "is kept for execs, so that limit may bind first; the log says so at the start.",
     .least = 1,
     .most = 1000000},
    {.path = "limits.max_connections_per_peer",
     .field = FIELD(Config, limits.max_connections_per_peer),
     .brief = "Connections at a time from one address, IPv6 /64 or local user.",
     .details = "The next is answered 429 and closed. Behind a proxy all clients have its address.",
     .least = 1,
     .most = 1000000},
    {.path = "limits.max_requests_per_connection",
     .field = FIELD(Config, limits.max_requests_per_connection),
     .brief = "Requests in one connection.",
     .details = "The last one's answer says `Connection: close`.",
     .least = 1,
     .most = 1000000000},
    {.path = "limits.max_header_bytes",
     .field = FIELD(Config, limits.max_header_bytes),
     .brief = "Bytes of a request's line and headers.",
     .details = "More is answered 400.",
     .least = 1024,
     .most = kMiB},
    {.path = "limits.max_headers",
     .field = FIELD(Config, limits.max_headers),
     .brief = "Headers of a request.",
     .details = "More is answered 400.",
     .least = 8,
     .most = 10000},
    {.path = "limits.max_json_bytes",
     .field = FIELD(Config, limits.max_json_bytes),
     .brief = "Bytes of a JSON body, and of the content that a JSON read answers.",
     .details = "Larger files go through /workspace/files, which streams.",
     .least = 1024,
     .most = kGiB},
    {.path = "limits.header_timeout_sec",
     .field = FIELD(Config, limits.header_timeout_sec),
     .brief = "Seconds from the first byte of a request to the end of its headers.",
     .details = "",
     .least = 1,
     .most = 3600},
    {.path = "limits.body_idle_timeout_sec",
     .field = FIELD(Config, limits.body_idle_timeout_sec),
     .brief = "Seconds without a byte of a request's body.",
     .details = "",
     .least = 1,
     .most = 3600},
    {.path = "limits.idle_timeout_sec",
     .field = FIELD(Config, limits.idle_timeout_sec),
     .brief = "Seconds that a kept-alive connection may wait between requests.",
     .details = "",
     .least = 1,
     .most = kDay},
    {.path = "limits.write_timeout_sec",
     .field = FIELD(Config, limits.write_timeout_sec),
     .brief = "Seconds in which a client must take at least one byte of its answer.",
     .details = "Then the connection is reset, and the exec of a stream killed.",
     .least = 1,
     .most = 3600},
    {.path = "limits.min_bytes_per_sec",
     .field = FIELD(Config, limits.min_bytes_per_sec),
     .brief = "Bytes per second that a client has to send of a body, or take of an answer, on average.",
     .details = "Only the time spent waiting for the client counts, beyond body_idle_timeout_sec and "
                "write_timeout_sec. 0: any rate.",
     .least = 0,
     .most = kGiB},
    {.path = "limits.max_execs",
     .field = FIELD(Config, limits.max_execs),
     .brief = "Execs at a time.",
     .details = "",
     .least = 1,
     .most = 1000000},
    {.path = "limits.max_execs_per_sandbox",
     .field = FIELD(Config, limits.max_execs_per_sandbox),
     .brief = "Execs at a time in one sandbox.",
     .details = "",
     .least = 1,
     .most = 1000000},
    {.path = "limits.exec_queue",
     .field = FIELD(Config, limits.exec_queue),
     .brief = "Execs that may wait for a place; the next is answered 429.",
     .details = "",
     .least = 0,
     .most = 1000000},
    {.path = "limits.max_sandboxes",
     .field = FIELD(Config, limits.max_sandboxes),
     .brief = "Sandboxes at a time, used or not; the next is answered 507 `quota_exceeded`.",
     .details = "Each keeps its files until it is ended with `purge=true`.",
     .least = 1,
     .most = 1000000},
    {.path = "limits.max_sandboxes_per_tenant",
     .field = FIELD(Config, limits.max_sandboxes_per_tenant),
     .brief = "Sandboxes at a time of one tenant; the next is answered 507 `quota_exceeded`.",
     .details = "",
     .least = 1,
     .most = 1000000},
    {.path = "limits.list_max_entries",
     .field = FIELD(Config, limits.list_max_entries),
     .brief = "Entries of one listing.",
     .details = "",
     .least = 1,
     .most = 10000000},
    {.path = "exec.timeout_sec",
     .field = FIELD(Config, exec.timeout_sec),
     .brief = "Seconds of an exec whose request names none.",
     .details = "Then its whole tree is killed and the outcome is `timed_out`.",
     .least = 0.001,
     .most = kYear},
    {.path = "exec.max_timeout_sec",
     .field = FIELD(Config, exec.max_timeout_sec),
     .brief = "The most seconds a request may ask for.",
     .details = "",
     .least = 0.001,
     .most = kYear},
    {.path = "exec.max_output_bytes",
     .field = FIELD(Config, exec.max_output_bytes),
     .brief = "Bytes of stdout, and of stderr, in an answer whose request names none.",
     .details = "What exceeds them is read and counted, not kept; the answer says `truncated`.",
     .least = 1,
     .most = kGiB},
    {.path = "exec.max_max_output_bytes",
     .field = FIELD(Config, exec.max_max_output_bytes),
     .brief = "The most bytes a request may ask for.",
     .details = "",
     .least = 1,
     .most = kGiB},
    {.path = "exec.env",
     .field = FIELD(Config, exec.env),
     .brief = "Variables added to every exec.",
     .details =
         "A request's own win. As a variable or flag: `NAME=value,NAME=value`, or a JSON object. Not for "
         "secrets: every program in a sandbox reads them.",
     .grammar = &kVariableName},
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
     .details = "Backends that need root's capabilities keep those and nothing else.",
     .grammar = &kUserName},
    {.path = "groups",
     .field = FIELD(BackendConfig, groups),
     .brief = "Supplementary groups of that host, for the socket of an engine.",
     .details = "",
     .grammar = &kUserName},
    {.path = "users",
     .field = FIELD(BackendConfig, users),
     .brief = "Users, by name or number, that a request's `user` may ask for.",
     .details = "root only when it is named here; that is a relaxation.",
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
     .details = "",
     .most = 4194304},
    {.path = "limits.disk_mb",
     .field = FIELD(BackendConfig, sandbox_limits.disk_bytes),
     .brief = "Workspace and scratch of a sandbox in MiB; 0: not limited.",
     .details = "",
     .most = 1 << 30,
     .scale = 1 << 20},
    {.path = "limits.mode",
     .field = FIELD(BackendConfig, limits_best_effort),
     .brief = "`enforce`: what cannot be enforced refuses the sandbox. `best_effort`: it is accepted.",
     .details = "A relaxation. `limits: best_effort` is short for `limits: {mode: best_effort}`.",
     .choices = kLimitModes},
    {.path = "egress",
     .field = FIELD(BackendConfig, egress),
     .brief = "Outbound network: `deny`, `proxy`, `allow`, or the backend's own `default`.",
     .details = "",
     .choices = kEgress},
    {.path = "config",
     .field = [](void* owner) -> Field { return AnyJson{&static_cast<BackendConfig*>(owner)->config_json}; },
     .brief = "The plugin's own settings; its JSON Schema rules them.",
     .details = "`isogate plugin describe` shows that schema."},
};

}  // namespace

std::span<const Setting> top_settings() { return kTop; }
std::span<const Setting> key_settings() { return kKey; }
std::span<const Setting> tls_client_settings() { return kTlsClient; }
std::span<const Setting> shared_dir_settings() { return kSharedDir; }
std::span<const Setting> backend_settings() { return kBackend; }

std::span<const Setting> item_settings(const Setting& list) {
  if (list.path == "keys") return kKey;
  if (list.path == "tls.clients") return kTlsClient;
  if (list.path == "shared_dirs") return kSharedDir;
  if (list.path == "backends") return kBackend;
  return {};
}

Field default_field(const Setting& setting) {
  static Config config;
  static KeyConfig key;
  static TlsClientConfig tls_client;
  static SharedDirConfig shared_dir;
  static BackendConfig backend;
  auto among = [&](std::span<const Setting> table) {
    return &setting >= table.data() && &setting < table.data() + table.size();
  };
  void* owner = &config;
  if (among(kKey)) owner = &key;
  if (among(kTlsClient)) owner = &tls_client;
  if (among(kSharedDir)) owner = &shared_dir;
  if (among(kBackend)) owner = &backend;
  return setting.field(owner);
}

const Setting* find_top_setting(std::string_view path) {
  auto found =
      std::find_if(std::begin(kTop), std::end(kTop), [&](const Setting& s) { return s.path == path; });
  return found == std::end(kTop) ? nullptr : found;
}

std::string environment_name(std::string_view path) {
  std::string name = "ISOGATE_";
  for (char c : path) name += c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return name;
}

std::string flag_name(std::string_view path) {
  std::string name = "--";
  for (char c : path) name += c == '.' || c == '_' ? '-' : c;
  return name;
}

}  // namespace isogate
