#include "gateway/config/settings_rows.h"

namespace isogate {
namespace {

constexpr Choice kIsolations[] = {{"none", ISOGATE_ISOLATION_NONE},
                                  {"namespace", ISOGATE_ISOLATION_NAMESPACE},
                                  {"container", ISOGATE_ISOLATION_CONTAINER},
                                  {"vm", ISOGATE_ISOLATION_VM}};
constexpr Choice kFallback[] = {{"never", 0}, {"allowed", 1}};
constexpr Choice kAnonymous[] = {{"never"}, {"loopback"}};
constexpr Choice kClientAuth[] = {{"required"}, {"optional"}};
constexpr Choice kOnShutdown[] = {{"remove", 0}, {"keep", 1}};
constexpr Choice kLogLevels[] = {{"debug"}, {"info"}, {"warn"}, {"error"}};

const Setting kGeneralRows[] = {
    {.path = "listen",
     .field = FIELD(Config, listen),
     .brief = "Where the gateway listens.",
     .details =
         "HOST:PORT with a literal address or `localhost`, [V6]:PORT, or unix:/PATH; port 0 takes a free "
         "one. "
         "Over the Unix socket the gateway's own user and root need no key. A listener beyond loopback is "
         "refused without configured `keys` or `tls.clients`. With `tls` every address but a Unix socket "
         "speaks TLS and nothing else.",
     .grammar = &kListenAddress,
     .needs_restart = true},
    {.path = "state_dir",
     .field = FIELD(Config, state_dir),
     .brief = "Where the gateway keeps its state: records, sandboxes, its own key.",
     .details = "Created with mode 0700, or 0711 if root starts the gateway, because its other users must "
                "reach their own subdirectories. A start with wider modes is refused.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true,
     .fallback = "/var/lib/isogate for root, else $XDG_STATE_HOME/isogate or ~/.local/state/isogate",
     .needs_restart = true},
    {.path = "instance",
     .field = FIELD(Config, instance),
     .brief = "Name of this gateway among others that share an Engine or a cluster.",
     .details = "Part of every sandbox's name: two gateways with different names never touch each other's "
                "sandboxes.",
     .grammar = &kName,
     .needs_restart = true},
    {.path = "plugin_dir",
     .field = FIELD(Config, plugin_dir),
     .brief = "Where plugin files are found.",
     .details = "It and every parent must be writable by root or the gateway's user alone.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true,
     .fallback =
         "../plugins or ../lib/isogate/plugins from the program's directory, else /usr/lib/isogate/plugins"},
    {.path = "shell",
     .field = FIELD(Config, shell),
     .brief = "The shell that runs an exec's `command`.",
     .details =
         "A path inside the sandbox; if the backend has a `root` or an image, a path in that. `argv` is "
         "run without it.",
     .grammar = &kAbsolutePath},
    {.path = "workdir",
     .field = FIELD(Config, workdir),
     .brief = "Root of the sandboxes' files on this host.",
     .details = "Empty: `sandboxes` in `state_dir`.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true,
     .needs_restart = true},
    {.path = "toolchain_path",
     .field = FIELD(Config, toolchain_path),
     .brief = "Directories in front of PATH for every exec, separated by `:`.",
     .details =
         "They must not overlap the gateway's own directories, nor lie in /proc, /sys, /dev or /run; "
         "with isolation `namespace` not in /tmp or /var/tmp either, where a sandbox has its own files.",
     .grammar = &kSearchPath,
     .may_be_empty = true,
     .other_variable = "TOOLCHAIN_PATH"},
    {.path = "shared_dirs",
     .field = FIELD(Config, shared_dirs),
     .brief = "Directories of this host that every sandbox may read under a prefix.",
     .details = "Read-only. As a variable or flag: `prefix:path,prefix:path`. They must not overlap the "
                "gateway's own "
                "directories or each other's prefix, nor lie in /proc, /sys, /dev or /run.",
     .other_variable = "SHARED_DIRS"},
    {.path = "multi_agent",
     .field = FIELD(Config, multi_agent),
     .brief = "Every call has to name its agent.",
     .details = "Without it a call that names none belongs to the agent `default`.",
     .strictest = Strictest::kLast},
    {.path = "require_remote",
     .field = FIELD(Config, require_remote),
     .brief = "Only backends that run commands behind an Engine, in a cluster or behind another gateway.",
     .details =
         "An Engine counts wherever it is: containers of this machine's own Engine run here. Nothing else "
         "ever runs on this host: when no such backend proves itself, calls answer `backend_unavailable` and "
         "the gateway stays up. Refuses `allow_unisolated` and `anonymous: loopback`.",
     .other_variable = "REQUIRE_REMOTE",
     .strictest = Strictest::kLast},
    {.path = "min_isolation",
     .field = FIELD(Config, min_isolation),
     .brief = "The least isolation a backend must have to be chosen.",
     .details = "A request may ask for more, never for less.",
     .choices = kIsolations,
     .strictest = Strictest::kLast},
    {.path = "fallback",
     .field = FIELD(Config, fallback_allowed),
     .brief = "Whether a later backend with less isolation may stand in for an earlier one: `never` or "
              "`allowed`.",
     .details =
         "`allowed`: when the first backend that policy would choose is unavailable (breaker, down), a "
         "later one with less isolation may be chosen, never below `min_isolation`. A relaxation, logged at "
         "every start. `never`: calls answer `backend_unavailable`, unless a later one isolates as much. "
         "Either way a backend that the front has never seen available since it started, or since a reload "
         "added it, because it is not installed or its probe says so, is passed over: only `min_isolation` "
         "keeps agents off what follows. What a request needs and the chosen backend lacks is `unsupported` "
         "either way.",
     .choices = kFallback,
     .strictest = Strictest::kFirst},
    {.path = "allow_unisolated",
     .field = FIELD(Config, allow_unisolated),
     .brief = "Developer mode: a backend that isolates nothing may be chosen.",
     .details = "A relaxation, logged as a warning at every start. Commands then run on this host.",
     .strictest = Strictest::kFirst},
    {.path = "anonymous",
     .field = FIELD(Config, anonymous),
     .brief = "Whether calls without a key are served: `never`, or from this machine over `loopback`.",
     .details =
         "`loopback` is a relaxation, logged at every start: any program and, but for the checks of Host and "
         "Origin, any web page on this machine could run commands. A request that a proxy sent on "
         "(Forwarded, Via, X-Forwarded-*, X-Real-IP and similar) still needs a key. Refused under "
         "`require_remote`.",
     .choices = kAnonymous,
     .strictest = Strictest::kFirst},
    {.path = "hosts",
     .field = FIELD(Config, hosts),
     .brief = "Names that a Host header may carry besides `localhost` and the bound address.",
     .details = "Only read with `anonymous: loopback`.",
     .grammar = &kHostName},
    {.path = "keys",
     .field = FIELD(Config, keys),
     .brief = "The API keys that are accepted, as hashes.",
     .details = "With neither `keys` nor `tls.clients`, the gateway creates one key for this machine at its "
                "first start, `local.key` in `state_dir`, and listens on loopback and Unix sockets only."},
    {.path = "tls.cert",
     .field = FIELD(Config, tls.cert),
     .brief = "The certificate, PEM, with its chain after it; empty: no TLS.",
     .details = "Read again on SIGHUP: open connections keep the old certificate, new ones get the new one. "
                "If the files are missing, invalid or do not match, the whole reload is refused and the old "
                "configuration stays. TLS 1.2 and 1.3, ALPN `http/1.1`. Every TCP address of `listen` then "
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
     .grammar = &kAbsolutePath,
     .may_be_empty = true},
    {.path = "tls.client_auth",
     .field = FIELD(Config, tls.client_auth),
     .brief = "Whether a client certificate is `required` for a connection, or `optional`.",
     .details = "Only read with `tls.client_ca`. One that does not verify ends the connection either way.",
     .choices = kClientAuth,
     .strictest = Strictest::kFirst},
    {.path = "tls.clients",
     .field = FIELD(Config, tls.clients),
     .brief = "The tenants of client certificates; the first entry that matches a certificate decides.",
     .details = "A certificate without an entry opens the connection and nothing else: its requests need a "
                "key. A key that is sent wins over the certificate."},
    {.path = "tls.handshake_timeout_sec",
     .field = FIELD(Config, tls.handshake_timeout_sec),
     .brief = "Seconds from a connection's start to the end of its TLS handshake.",
     .range = {1, 3600}},
    {.path = "cors.origins",
     .field = FIELD(Config, cors.origins),
     .brief = "Origins, SCHEME://HOST[:PORT], whose web pages may call this gateway from a browser.",
     .details = "The gateway answers their preflights, and they may read the responses; they still need a "
                "key. Other pages get no permission.",
     .grammar = &kOrigin},
    {.path = "metrics.listen",
     .field = FIELD(Config, metrics.listen),
     .brief = "A listener of its own, HOST:PORT, for /metrics, /livez, /readyz and /healthz; empty: none.",
     .details = "It asks for no key, speaks plain HTTP and answers nothing else. Beyond loopback that is a "
                "relaxation. On the other listeners /metrics needs a key.",
     .grammar = &kListenAddress,
     .may_be_empty = true,
     .needs_restart = true},
    {.path = "e2b.listen",
     .field = FIELD(Config, e2b.listen),
     .brief = "Listeners of their own, HOST:PORT, for the SDKs of E2B; empty: none.",
     .details =
         "Each serves E2B's control plane and its sandboxes: E2B_API_URL and E2B_SANDBOX_URL may name the "
         "same one. They ask for keys as `listen` does; with `tls` they speak TLS.",
     .grammar = &kListenAddress,
     .needs_restart = true},
    {.path = "e2b.domain",
     .field = FIELD(Config, e2b.domain),
     .brief =
         "Requests at `e2b.listen` whose Host is PORT-SANDBOX.DOMAIN go to that sandbox; empty: none do.",
     .details =
         "For SDKs without E2B_SANDBOX_URL, and for the ports of sandboxes. DNS must resolve names below "
         "DOMAIN to this gateway; with TLS, the certificate must cover them.",
     .grammar = &kHostName,
     .may_be_empty = true},
    {.path = "e2b.templates",
     .field = FIELD(Config, e2b.templates),
     .brief = "Names of templates, and the image of each.",
     .details = "An empty image is the backend's own. `base` always exists; unless listed here, it has the "
                "backend's own image. An image has to be admitted by `images` of the backend.",
     .grammar = &kTemplateName},
    {.path = "e2b.timeout_sec",
     .field = FIELD(Config, e2b.timeout_sec),
     .brief = "Seconds until a sandbox made over `e2b.listen` is ended, when the request names none.",
     .range = {1, kYear}},
    {.path = "e2b.max_timeout_sec",
     .field = FIELD(Config, e2b.max_timeout_sec),
     .brief = "The most seconds that a request may name.",
     .range = {1, kYear}},
    {.path = "probe_interval_sec",
     .field = FIELD(Config, probe_interval_sec),
     .brief = "Seconds between two probes of a backend.",
     .range = {1, 3600}},
    {.path = "sandbox_idle_timeout_sec",
     .field = FIELD(Config, sandbox_idle_timeout_sec),
     .brief = "Seconds after its last call until a sandbox is stopped; 0: never.",
     .details = "Its container, or what else it keeps running, ends; its workspace stays, and the next call "
                "starts it again. The stop may come later by up to a quarter of that time, 30 s at most.",
     .range = {0, 31536000}},
    {.path = "drain_timeout_sec",
     .field = FIELD(Config, drain_timeout_sec),
     .brief = "Seconds that calls in flight get to end when the gateway stops.",
     .details = "What still runs then is killed.",
     .range = {0, 3600}},
    {.path = "on_shutdown",
     .field = FIELD(Config, keep_on_shutdown),
     .brief = "What happens to the sandboxes when the gateway stops: `remove` or `keep`.",
     .details = "Workspaces stay either way.",
     .choices = kOnShutdown},
    {.path = "wait_for_sidecar",
     .field = FIELD(Config, wait_for_sidecar),
     .brief = "Another gateway, HOST:PORT, whose health is awaited before serving.",
     .grammar = &kHostPort,
     .may_be_empty = true,
     .other_variable = "WAIT_FOR_SIDECAR",
     .needs_restart = true},
    {.path = "wait_for_sidecar_timeout_sec",
     .field = FIELD(Config, wait_for_sidecar_timeout_sec),
     .brief = "Seconds to wait for it; then the start fails.",
     .range = {1, kDay},
     .other_variable = "WAIT_FOR_SIDECAR_TIMEOUT",
     .needs_restart = true},
    {.path = "log.level",
     .field = FIELD(Config, log.level),
     .brief = "The least level that is logged.",
     .choices = kLogLevels},
    {.path = "log.file",
     .field = FIELD(Config, log.file),
     .brief = "The log file; empty: stderr.",
     .details =
         "A regular file, opened for appending, and reopened on SIGUSR1, after a rotation. Nothing waits for "
         "it: if the file takes no lines, up to 4 MiB wait; further lines are dropped and counted.",
     .grammar = &kAbsolutePath,
     .may_be_empty = true,
     .needs_restart = true},
    {.path = "log.access",
     .field = FIELD(Config, log.access),
     .brief = "Whether every request gets a line in the log: its id, route, status, bytes and stages.",
     .details = "Written at any level, a quarter of a second late at most."},
};

}  // namespace

std::span<const Setting> general_rows() { return kGeneralRows; }

}  // namespace isogate
