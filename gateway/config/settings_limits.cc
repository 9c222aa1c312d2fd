#include "gateway/config/settings_rows.h"

namespace isogate {
namespace {

const Setting kLimitRows[] = {
    {.path = "limits.max_connections",
     .field = FIELD(Config, limits.max_connections),
     .brief = "Connections at a time.",
     .details = "The next is answered 429 and closed; with TLS it is closed without a response. A quarter of "
                "the descriptors that RLIMIT_NOFILE allows is kept for execs, so that limit may bind first; "
                "the log reports that at the start.",
     .range = {1, 1000000}},
    {.path = "limits.max_connections_per_peer",
     .field = FIELD(Config, limits.max_connections_per_peer),
     .brief = "Connections at a time from one address, IPv6 /64 or local user.",
     .details =
         "The next is answered 429 and closed; with TLS it is closed without a response. 0: three quarters "
         "of the connections that there may be, so that others always find a place. Behind a proxy all "
         "clients have its address.",
     .range = {0, 1000000}},
    {.path = "limits.max_requests_per_connection",
     .field = FIELD(Config, limits.max_requests_per_connection),
     .brief = "Requests in one connection.",
     .details = "The response to the last one has `Connection: close`.",
     .range = {1, 1000000000}},
    {.path = "limits.max_header_bytes",
     .field = FIELD(Config, limits.max_header_bytes),
     .brief = "Bytes of a request's line and headers.",
     .details = "More is answered 400.",
     .range = {1024, kMiB}},
    {.path = "limits.max_headers",
     .field = FIELD(Config, limits.max_headers),
     .brief = "Headers of a request.",
     .details = "More is answered 400.",
     .range = {8, 10000}},
    {.path = "limits.max_json_bytes",
     .field = FIELD(Config, limits.max_json_bytes),
     .brief = "Bytes of a JSON body, and of the content that a JSON read answers.",
     .details = "Larger files go through /workspace/files, which streams.",
     .range = {1024, kGiB}},
    {.path = "limits.max_held_bytes",
     .field = FIELD(Config, limits.max_held_bytes),
     .brief = "Bytes of request bodies and responses kept in memory at a time; the next is answered 429.",
     .details =
         "Counted are JSON bodies, their parts that an exec or a write keeps, JSON reads and listings; for "
         "an "
         "exec twice its `max_output_bytes` while it runs, then what it wrote; for a stream 256 KiB, with "
         "`lines` 512 KiB. Uploads and downloads pass through and are not kept.",
     .range = {kMiB, 1024 * kGiB}},
    {.path = "limits.max_spool_bytes",
     .field = FIELD(Config, limits.max_spool_bytes),
     .brief = "Bytes of long-lived execs' output kept on disk at a time, in `state_dir`.",
     .details = "If an exec needs more, the output of ended execs is removed first, beginning with the "
                "oldest of the tenant whose ended execs hold the most. After that the exec's own oldest "
                "output is dropped. Its files, one for each stream, are limited likewise, to one for each 32 "
                "descriptors of RLIMIT_NOFILE. 0: none is kept on disk.",
     .range = {0, 1024 * 1024 * kGiB}},
    {.path = "limits.tenant_share_percent",
     .field = FIELD(Config, limits.tenant_share_percent),
     .brief = "The share of one tenant, in percent, of what all tenants use together.",
     .details = "That is `limits.max_held_bytes`, `limits.max_spool_bytes` and its files, `limits.max_execs` "
                "and `limits.exec_queue`, and of each backend its file calls, watches, connections to ports "
                "and open sandboxes. 0: 50 where `keys` and `tls.clients` name more than one "
                "tenant, else 100.",
     .range = {0, 100}},
    {.path = "limits.header_timeout_sec",
     .field = FIELD(Config, limits.header_timeout_sec),
     .brief = "Seconds from the first byte of a request to the end of its headers.",
     .details = "And from the start of a connection to the first byte of its first request.",
     .range = {1, 3600}},
    {.path = "limits.body_idle_timeout_sec",
     .field = FIELD(Config, limits.body_idle_timeout_sec),
     .brief = "Seconds without a byte of a request's body.",
     .details = "It also limits the backend in a file call: if it transfers no byte and sends no response "
                "for this long, the call is cancelled and answered 503. A write that is flushed or appended, "
                "and a removal, have 600 s for their end.",
     .range = {1, 3600}},
    {.path = "limits.idle_timeout_sec",
     .field = FIELD(Config, limits.idle_timeout_sec),
     .brief = "Seconds that a kept-alive connection may wait between requests.",
     .range = {1, kDay}},
    {.path = "limits.write_timeout_sec",
     .field = FIELD(Config, limits.write_timeout_sec),
     .brief = "Seconds in which a client must take at least one byte of its response.",
     .details = "Then the connection is reset, and the exec of a stream killed.",
     .range = {1, 3600}},
    {.path = "limits.min_bytes_per_sec",
     .field = FIELD(Config, limits.min_bytes_per_sec),
     .brief = "Bytes per second that a client has to send of a body, or take of a response, on average.",
     .details = "Only the time spent waiting for the client counts, beyond body_idle_timeout_sec and "
                "write_timeout_sec. 0: any rate.",
     .range = {0, kGiB}},
    {.path = "limits.max_execs",
     .field = FIELD(Config, limits.max_execs),
     .brief = "Execs at a time.",
     .range = {1, 1000000}},
    {.path = "limits.max_execs_per_sandbox",
     .field = FIELD(Config, limits.max_execs_per_sandbox),
     .brief = "Execs at a time in one sandbox.",
     .range = {1, 1000000}},
    {.path = "limits.exec_queue",
     .field = FIELD(Config, limits.exec_queue),
     .brief = "Execs that may wait for a place; the next is answered 429.",
     .range = {0, 1000000}},
    {.path = "limits.exec_queue_timeout_sec",
     .field = FIELD(Config, limits.exec_queue_timeout_sec),
     .brief = "Seconds that an exec waits for a place; then it is answered 429.",
     .details = "They do not count against its own `timeout_sec`.",
     .range = {1, 3600}},
    {.path = "limits.max_sandboxes",
     .field = FIELD(Config, limits.max_sandboxes),
     .brief = "Sandboxes at a time, used or not; the next is answered 507 `quota_exceeded`.",
     .details = "Each keeps its files until it is ended with `purge=true`.",
     .range = {1, 1000000}},
    {.path = "limits.max_sandboxes_per_tenant",
     .field = FIELD(Config, limits.max_sandboxes_per_tenant),
     .brief = "Sandboxes at a time of one tenant; the next is answered 507 `quota_exceeded`.",
     .range = {1, 1000000}},
    {.path = "limits.max_disk_mb_per_tenant",
     .field = FIELD(Config, limits.max_disk_mb_per_tenant),
     .brief =
         "MiB of disk that the sandboxes of one tenant may have together; the next sandbox is answered 507.",
     .details =
         "The sum of their limits, used or not. 0: no such limit. With it, a sandbox without a limit of its "
         "own is refused.",
     .range = {0, 1ull << 40}},
    {.path = "limits.list_max_entries",
     .field = FIELD(Config, limits.list_max_entries),
     .brief = "Entries of one listing.",
     .range = {1, 10000000}},
    {.path = "exec.timeout_sec",
     .field = FIELD(Config, exec.timeout_sec),
     .brief = "Seconds of an exec whose request names none.",
     .details = "Then its whole tree is killed and the outcome is `timed_out`.",
     .range = {0.001, kYear}},
    {.path = "exec.max_timeout_sec",
     .field = FIELD(Config, exec.max_timeout_sec),
     .brief = "The most seconds a request may ask for.",
     .range = {0.001, kYear}},
    {.path = "exec.max_background_sec",
     .field = FIELD(Config, exec.max_background_sec),
     .brief = "The most seconds that a long-lived exec may run, and its limit if the request names none.",
     .details = "An exec with `background` or `wait_sec` is long-lived.",
     .range = {0.001, kYear}},
    {.path = "exec.keep_ended_sec",
     .field = FIELD(Config, exec.keep_ended_sec),
     .brief = "Seconds that a long-lived exec which has ended is kept with its output.",
     .details = "At most 256 of a tenant are. How it ended is in the journal afterwards.",
     .range = {0, kYear}},
    {.path = "exec.survive_sec",
     .field = FIELD(Config, exec.survive_sec),
     .brief = "Seconds that a long-lived exec goes on without the gateway, on a backend that can keep it.",
     .details =
         "A gateway that is back within this time finds the exec again; otherwise the exec is killed. 0: the "
         "exec ends with the gateway. An orderly stop keeps the exec only with `on_shutdown: keep`.",
     .range = {0, 3600}},
    {.path = "exec.spool_bytes",
     .field = FIELD(Config, exec.spool_bytes),
     .brief = "Bytes that are kept of each stream of a long-lived exec, on disk from `max_output_bytes` on.",
     .details = "As far as `limits.max_spool_bytes` and file descriptors allow. The file is in `state_dir`, "
                "has no name, and is gone with the exec or the gateway. 0, or no more than "
                "`max_output_bytes`: only memory is used.",
     .range = {0, 1024 * kGiB}},
    {.path = "exec.max_output_bytes",
     .field = FIELD(Config, exec.max_output_bytes),
     .brief = "Bytes of stdout, and of stderr, in a response whose request names none.",
     .details = "What exceeds them is read and counted, not kept; the response has `truncated: true`.",
     .range = {1, 64 * kMiB}},
    {.path = "exec.max_max_output_bytes",
     .field = FIELD(Config, exec.max_max_output_bytes),
     .brief = "The most bytes a request may ask for.",
     .details = "More goes through POST /exec-stream, or into a file.",
     .range = {1, 64 * kMiB}},
    {.path = "exec.env",
     .field = FIELD(Config, exec.env),
     .brief = "Variables added to every exec.",
     .details =
         "A request's own win. As a variable or flag: `NAME=value,NAME=value`, or a JSON object. Not for "
         "secrets: every program in a sandbox reads them.",
     .grammar = &kVariableName},
    {.path = "ports.domain",
     .field = FIELD(Config, ports.domain),
     .brief =
         "Requests whose Host is PORT-AGENT.DOMAIN go to that port of the agent's sandbox; empty: none do.",
     .details =
         "Plain HTTP, and what it switches to (WebSocket). Every request needs a key. A key in "
         "`Authorization` is not passed on. With `X-Isogate-Key`, the program receives the request's "
         "`Authorization`. The key's tenant decides whose agent it is. DNS must resolve names below DOMAIN "
         "to this gateway; with TLS, the certificate must cover them.",
     .grammar = &kHostName,
     .may_be_empty = true},
    {.path = "ports.max_per_sandbox",
     .field = FIELD(Config, ports.max_per_sandbox),
     .brief = "Connections at a time to ports of one sandbox; the next is answered 429.",
     .details = "A backend takes 512 in all, and of one tenant its share (`limits.tenant_share_percent`).",
     .range = {1, 512}},
};

}  // namespace

std::span<const Setting> limit_rows() { return kLimitRows; }

}  // namespace isogate
