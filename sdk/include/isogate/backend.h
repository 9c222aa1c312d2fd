/* isogate backend ABI, version 1.
 *
 * A plugin is one shared object that exports exactly one function, isogate_plugin_entry(), which
 * returns a static descriptor. Start with backend.hpp if you write C++: it is this header with the
 * boilerplate removed. docs/writing-a-backend.md walks through both.
 *
 * Rules for every function below
 *   Errors   A function that can fail returns an isogate_status and fills the caller's
 *            isogate_error. Nothing throws or longjmps across this boundary.
 *   Memory   Whoever allocates it frees it. Arguments are borrowed for the call: copy what you keep.
 *   Strings  UTF-8 unless said otherwise, pointer and length, not NUL-terminated. A path or an
 *            argument may hold any byte but NUL.
 *   Structs  Every struct with struct_size grows only at its end. The caller sets struct_size to the
 *            size it knows, also in a struct that the callee fills; the callee reads and writes only
 *            what that covers, and takes the rest as zero. It covers at least what version 1.0 has.
 *            In a field that a later version appends, zero means the behaviour of the version before.
 *            isogate_str, isogate_pair, isogate_limit, isogate_shared_dir, isogate_entry_sink,
 *            isogate_record_sink, isogate_control and isogate_change have no struct_size and never change.
 *   Arrays   Pointer and count; with a count of 0 the pointer may be NULL.
 *   Flags    Unknown bits in a request are refused with ISOGATE_INVALID_ARGUMENT; unknown bits in
 *            an answer are ignored.
 *   Reserved Such fields are 0. In a request anything else is refused with ISOGATE_INVALID_ARGUMENT,
 *            in an answer it is ignored.
 *   Fds      Borrowed for the call, never closed by the callee, -1 for none, always close-on-exec.
 *   Threads  [main] the host calls it from one thread, no other call on that backend is running.
 *            [any]  any thread, concurrently.
 *            [box]  any thread, concurrently, also for one sandbox.
 *   Process  A plugin shares its backend host with nothing but other generations of itself. It
 *            leaves signal dispositions, umask, cwd, environ and rlimits alone, never waits for
 *            pid -1, and writes nothing to the host's stdout or stderr.
 *
 * Versions. A plugin loads iff magic and abi_major match and its abi_minor, the least it needs and
 * normally 0, is not above the host's. Within a major version fields, functions, ids of limits,
 * flags and capabilities are only added, each raises ISOGATE_ABI_MINOR, and none changes its meaning.
 * A capability names each flag of a request, option or close mode that is added, and each added field
 * of a request: the host sends it, or a value other than 0, only to a backend whose probe claims that
 * capability. So no backend gets what it does not know, and what it refuses is a defect of the host.
 */
#ifndef ISOGATE_BACKEND_H
#define ISOGATE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ISOGATE_ABI_MAGIC 0x31475349u /* "ISG1" */
#define ISOGATE_ABI_MAJOR 1u
#define ISOGATE_ABI_MINOR 0u
#define ISOGATE_PLUGIN_ENTRY_NAME "isogate_plugin_entry"

/* Before isogate_plugin_entry(): it is visible, whatever -fvisibility says. */
#ifdef __cplusplus
#define ISOGATE_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define ISOGATE_EXPORT __attribute__((visibility("default")))
#endif

typedef struct isogate_str {
  const char* ptr;
  uint64_t len;
} isogate_str;

typedef struct isogate_pair {
  isogate_str key;
  isogate_str value;
} isogate_pair;

/* ---- errors -------------------------------------------------------------------------------- */

typedef int32_t isogate_status;
#define ISOGATE_OK 0
#define ISOGATE_INVALID_ARGUMENT 1   /* the request is malformed; the caller can correct it */
#define ISOGATE_NOT_FOUND 2          /* no such file, directory or user */
#define ISOGATE_ALREADY_EXISTS 3
#define ISOGATE_PERMISSION_DENIED 4  /* also: a path that leaves the workspace */
#define ISOGATE_UNSUPPORTED 5        /* this backend cannot do that, here or at all; says what */
#define ISOGATE_UNAVAILABLE 6        /* the backend cannot serve now; nothing was started */
#define ISOGATE_CANCELLED 7          /* cancel_fd fired before anything was started or changed */
#define ISOGATE_RESOURCE_EXHAUSTED 8 /* a quota or a kernel limit; says which */
#define ISOGATE_IO 9
#define ISOGATE_INTERNAL 10     /* a defect of the plugin; unknown statuses are taken as this, of exec as LOST */
#define ISOGATE_LOST 11         /* contact was lost after something may have started: never success */
#define ISOGATE_SANDBOX_LOST 12 /* the workspace itself is lost */
#define ISOGATE_IS_DIRECTORY 13 /* a file was requested, the path is a directory */
#define ISOGATE_NOT_REGULAR 14  /* a FIFO, device or socket: never opened */
#define ISOGATE_NO_SANDBOX 15   /* no such sandbox (attach, close, and calls to one that ended) */

/* The status decides what the caller gets. os_errno adds to it in these cases only:
 *   ISOGATE_RESOURCE_EXHAUSTED   EAGAIN, EMFILE, ENFILE, ENOMEM: worth another try (HTTP 429);
 *                                EBUSY: a file is in use, worth another try (409);
 *                                EFBIG: the file is too large (413);
 *                                any other, and 0: a disk or a quota is full (507), with EDQUOT the sandbox's own;
 *                                ENAMETOOLONG from list(): see there
 *   from create()                ISOGATE_PERMISSION_DENIED and ISOGATE_NOT_FOUND refuse the configuration, as
 *                                ISOGATE_INVALID_ARGUMENT does, only if it is 0: else the kernel refused
 * sdk::status_of() of backend.hpp has the status for each errno of a file call. */
typedef struct isogate_error { /* the caller's, never NULL; the plugin writes it, only on failure */
  uint32_t struct_size;
  int32_t os_errno;   /* the kernel's reason, 0 when none */
  char message[1016]; /* NUL-terminated, for a person: the thing, what was attempted, why not.
                         No host path, no name of another tenant. */
} isogate_error;

/* ---- one call ------------------------------------------------------------------------------ */

typedef struct isogate_call {
  uint32_t struct_size;
  int32_t cancel_fd;      /* readable (POLLIN) once cancelled or past the deadline; poll it, never
                             read it: an eventfd, or another descriptor. -1: cannot be cancelled. */
  int64_t deadline_ns;    /* CLOCK_MONOTONIC; INT64_MAX for none. Advisory: cancel_fd enforces. */
  isogate_str request_id; /* for log lines */
} isogate_call;

/* ---- limits -------------------------------------------------------------------------------- */

/* An upper bound of one resource. A request lists the limits it asks for. Each is enforced, or the call is
 * refused: ISOGATE_UNSUPPORTED for an id that this backend does not know or cannot enforce there (open with
 * ISOGATE_OPEN_LIMITS_BEST_EFFORT leaves it out), ISOGATE_INVALID_ARGUMENT for an id twice or a value of 0. */
typedef struct isogate_limit {
  uint32_t id;       /* ISOGATE_LIMIT_* */
  uint32_t reserved; /* 0 */
  uint64_t value;    /* in the unit of its id, at least 1 */
} isogate_limit;

#define ISOGATE_LIMIT_MEMORY_BYTES 1u /* RAM and swap together */
#define ISOGATE_LIMIT_CPU_MILLIS 2u   /* processor time; 1000 is one CPU */
#define ISOGATE_LIMIT_PIDS 3u         /* processes and threads */
#define ISOGATE_LIMIT_DISK_BYTES 4u   /* of the workspace, and of scratch that is on a disk */

/* ---- sandboxes ----------------------------------------------------------------------------- */

#define ISOGATE_EGRESS_UNSET 0u /* the backend's own default */
#define ISOGATE_EGRESS_DENY 1u
#define ISOGATE_EGRESS_PROXY 2u
#define ISOGATE_EGRESS_ALLOW 3u

#define ISOGATE_OPEN_ATTACH_ONLY (1u << 0) /* ISOGATE_NO_SANDBOX instead of creating one. A refusal, such as of
                                              its egress, is kept for its calls: it can always be closed */
#define ISOGATE_OPEN_LIMITS_BEST_EFFORT (1u << 1) /* the operator wrote limits: best_effort */
#define ISOGATE_OPEN_KNOWN (1u << 2) /* it had a workspace: ISOGATE_SANDBOX_LOST if that is lost,
                                        never an empty one; its container may be started again. With
                                        CAP_PERSISTENT the answer has ATTACHED, or it counts as lost */
#define ISOGATE_OPEN_RUNNING_ONLY (1u << 3) /* re-attach to what runs; create and start nothing. No call
                                               waits for it. If it cannot be used unchanged, for example
                                               because settings differ or are refused, end it:
                                               ISOGATE_NO_SANDBOX.
                                               Set only where enumerate() reported ISOGATE_SANDBOX_RUNS. */

typedef struct isogate_sandbox_spec {
  uint32_t struct_size;
  uint32_t flags;         /* ISOGATE_OPEN_* */
  uint32_t egress;        /* ISOGATE_EGRESS_* */
  uint32_t reserved;      /* 0 */
  isogate_str sandbox_id; /* "isg-" and 26 characters of base32, a-z2-7; the only name to use outside */
  isogate_str tenant;     /* for labels and messages */
  isogate_str agent_id;   /* [A-Za-z0-9][A-Za-z0-9_-]{0,62} */
  isogate_str handle;     /* what open() answered before, to re-attach to exactly that; or empty */
  const isogate_limit* limits; /* of the whole sandbox */
  uint64_t limit_count;
  const isogate_pair* options; /* settings of this sandbox alone. A key that a backend does not know is
                                  ISOGATE_UNSUPPORTED. ISOGATE_OPTION_* are defined; "mounts" is
                                  reserved */
  uint64_t option_count;
} isogate_sandbox_spec;

/* The image whose files its programs see, in place of the backend's own. Passed at every open of that sandbox,
 * only to a backend with CAP_IMAGE. */
#define ISOGATE_OPTION_IMAGE "image"

#define ISOGATE_SANDBOX_ATTACHED (1u << 0) /* its workspace existed already */
#define ISOGATE_SANDBOX_RUNS (1u << 1)     /* it continues when its host ends. One host at a time has it open:
                                              the next one opens it after that has closed it. It is no
                                              descendant of the gateway: those are killed when that stops */
#define ISOGATE_SANDBOX_FRESH (1u << 2)    /* this open created the place where its programs run, and no tenant's
                                              program has run there; its workspace may be old. Without it an
                                              ATTACHED sandbox may have been used. */

typedef struct isogate_sandbox_info {
  uint32_t struct_size;
  uint32_t flags;     /* ISOGATE_SANDBOX_* */
  uint32_t isolation; /* ISOGATE_ISOLATION_*, of this sandbox */
  uint32_t uid;       /* of its programs, as the host kernel sees it; UINT32_MAX: not known */
  char handle[240];   /* NUL-terminated: container id, pod UID, …; recorded by the host */
} isogate_sandbox_info;

#define ISOGATE_CLOSE_DETACH 0u /* forget the handle, leave it running */
#define ISOGATE_CLOSE_STOP 1u   /* end what runs, keep the workspace */
#define ISOGATE_CLOSE_PURGE 2u  /* end what runs, remove the workspace and every trace */

typedef struct isogate_record { /* one sandbox found by enumerate() */
  uint32_t struct_size;
  uint32_t flags; /* ISOGATE_SANDBOX_RUNS: something runs in it, or remains of what ran */
  isogate_str sandbox_id;
  isogate_str handle;
} isogate_record;

typedef struct isogate_record_sink { /* the host's; called on the plugin's thread, during the call */
  void* ctx;
  isogate_status (*add)(void* ctx, const isogate_record* record); /* not OK: stop, return it */
} isogate_record_sink;

/* ---- exec ---------------------------------------------------------------------------------- */

#define ISOGATE_EXEC_PTY (1u << 0)            /* a terminal: its bytes use stdin_fd and stdout_fd */
#define ISOGATE_EXEC_LIMITS_SAMPLED (1u << 1) /* limits that the kernel cannot enforce here may be sampled; \
                                                 only for a backend with a CAP_LIMIT_…_SAMPLED */
#define ISOGATE_EXEC_MERGE_STDERR (1u << 2) /* stderr is stdout_fd, in the order of the writes; stderr_fd is \
                                               not used. Only for a backend with CAP_MERGE_STDERR */

typedef struct isogate_exec_request {
  uint32_t struct_size;
  uint32_t flags;          /* ISOGATE_EXEC_* */
  isogate_str exec_id;     /* 32 hex digits, the host's, unique */
  const isogate_str* argv; /* argv[0] is looked up in the PATH of env unless it has a slash */
  uint64_t argc;           /* at least 1 */
  const isogate_pair* env; /* nothing is inherited; a backend adds PATH, HOME, USER, LOGNAME, SHELL
                              and WORKSPACE where these are absent */
  uint64_t envc;
  isogate_str cwd;  /* relative to the workspace, or /workspace/…; empty: the workspace. Otherwise
                       absolute only where the sandbox has a view of its own. */
  isogate_str user; /* name or number the operator admitted; empty: the sandbox's own */
  int32_t stdin_fd; /* -1: /dev/null. The program gets these descriptors themselves where it can. */
  int32_t stdout_fd;
  int32_t stderr_fd;
  int32_t control_fd;          /* a pipe of isogate_control; -1: none; end of file: no more */
  const isogate_limit* limits; /* bind this exec alone */
  uint64_t limit_count;
  uint16_t rows, cols; /* of the PTY; 0: 24 × 80 */
  uint32_t reserved;   /* 0 */
} isogate_exec_request;

#define ISOGATE_RESULT_OOM_KILLED (1u << 0)  /* from the kernel's counters or samples, not from the signal */
#define ISOGATE_RESULT_KILLED (1u << 1)      /* ended because cancel_fd fired */
#define ISOGATE_RESULT_NOT_STARTED (1u << 2) /* exec failed: exit_code 126 or 127, os_errno says why */
#define ISOGATE_RESULT_PROVEN (1u << 3)      /* `isolation` was measured for this exec */
#define ISOGATE_RESULT_LEFT_BEHIND (1u << 4) /* something it started could not be ended in time */
#define ISOGATE_RESULT_PIDS_EXCEEDED (1u << 5) /* killed: samples showed more processes than its limit */

typedef struct isogate_exec_result { /* a program that fails is ISOGATE_OK with its exit_code */
  uint32_t struct_size;
  uint32_t flags;         /* ISOGATE_RESULT_* */
  int32_t exit_code;      /* valid when term_signal is 0 */
  int32_t term_signal;    /* 0: it exited */
  int32_t os_errno;       /* with NOT_STARTED */
  uint32_t isolation;     /* ISOGATE_ISOLATION_*, with PROVEN */
  uint64_t wall_ns;       /* from the start of the program to its end; above INT64_MAX, as the next two: 0 */
  uint64_t cpu_ns;        /* user and system, of what was waited for */
  uint64_t max_rss_bytes; /* 0: not known */
} isogate_exec_result;

#define ISOGATE_CONTROL_SIGNAL 1u /* a: signal number, to the program's process group */
#define ISOGATE_CONTROL_RESIZE 2u /* a: rows, b: columns */

typedef struct isogate_control { /* 16 bytes, written whole; unknown types are skipped */
  uint32_t type;
  uint32_t a;
  uint32_t b;
  uint32_t reserved; /* 0 */
} isogate_control;

/* ---- files --------------------------------------------------------------------------------- */

#define ISOGATE_SCOPE_WORKSPACE 0u /* path relative to the workspace; /workspace/… is the same */
#define ISOGATE_SCOPE_SANDBOX 1u   /* absolute path in the sandbox's own view, as its user */

#define ISOGATE_FILE_APPEND (1u << 0)     /* write: add to the end; still whole or not at all */
#define ISOGATE_FILE_DURABLE (1u << 1)    /* write: on disk when it returns */
#define ISOGATE_FILE_EXCLUSIVE (1u << 2)  /* write, mkdir, move: ISOGATE_ALREADY_EXISTS if there */
#define ISOGATE_FILE_PARENTS (1u << 3)    /* write, mkdir, move: make missing parent directories */
#define ISOGATE_FILE_RECURSIVE (1u << 4)  /* list, remove, watch: the whole tree */
#define ISOGATE_FILE_MODE_GIVEN (1u << 5) /* write: use mode; else keep the old mode, or 0644 */
#define ISOGATE_FILE_REPLACE (1u << 6)    /* write, move: replace even a file whose mode makes it read-only to the
                                             user; without it such a file is ISOGATE_PERMISSION_DENIED */

typedef struct isogate_file_request {
  uint32_t struct_size;
  uint32_t scope; /* ISOGATE_SCOPE_* */
  uint32_t flags; /* ISOGATE_FILE_* */
  uint32_t mode;  /* permission bits, at most 0777; write with MODE_GIVEN, mkdir (0: 0755) */
  isogate_str path;
  isogate_str path_to; /* move */
  isogate_str user;    /* as in isogate_exec_request */
  uint64_t offset;     /* read */
  uint64_t limit;      /* read: bytes, UINT64_MAX for all; list: entries, 0 for all */
  int32_t fd;          /* read, watch: written to; write: read to its end */
  int32_t complete_fd; /* write: readable once the whole body is in `fd`. If it is not readable when `fd` ends,
                          the sender is gone and nothing is committed. -1: the end of `fd` suffices */
} isogate_file_request;

#define ISOGATE_ENTRY_REGULAR 1u
#define ISOGATE_ENTRY_DIRECTORY 2u
#define ISOGATE_ENTRY_SYMLINK 3u
#define ISOGATE_ENTRY_OTHER 4u
#define ISOGATE_SIZE_UNKNOWN UINT64_MAX /* read: a file that the kernel generates (/proc, /sys), end not reached */

typedef struct isogate_entry {
  uint32_t struct_size;
  uint32_t type;     /* ISOGATE_ENTRY_* */
  uint32_t mode;     /* permission bits */
  uint32_t reserved; /* 0 */
  uint64_t size;     /* bytes, at most INT64_MAX; regular files */
  int64_t mtime_ns;  /* since 1970, UTC */
  isogate_str name; /* list: path relative to the listed directory, any bytes; else empty */
} isogate_entry;

typedef struct isogate_entry_sink { /* the host's; called on the plugin's thread, during the call */
  void* ctx;
  isogate_status (*add)(void* ctx, const isogate_entry* entry); /* not OK: stop, return it */
} isogate_entry_sink;

/* ---- changes: what watch() reports ----------------------------------------------------------- */

#define ISOGATE_CHANGE_READY 1u    /* the first record, once: every later change is reported */
#define ISOGATE_CHANGE_CREATED 2u  /* created, or replaced an existing file; may come twice */
#define ISOGATE_CHANGE_WRITTEN 3u  /* a file's content; one record may stand for several writes */
#define ISOGATE_CHANGE_REMOVED 4u  /* or moved out of the watched tree */
#define ISOGATE_CHANGE_RENAMED 5u  /* from `from` to `path`, both within the watched tree */
#define ISOGATE_CHANGE_ATTRIBUTES 6u /* mode, owner, times */
#define ISOGATE_CHANGE_OVERFLOW 7u /* changes before it were lost: list again */

#define ISOGATE_CHANGE_DIRECTORY (1u << 0) /* `path` is, or was, a directory */

#define ISOGATE_CHANGE_MAX_PATH 4095u

/* One record in the stream of watch(): this struct, `path_length` bytes of the path, `from_length` bytes of the
 * path before a rename; the next record follows at once. Both paths are relative to the watched directory. They
 * have any bytes but NUL, and no empty components, `.` or `..`. READY and OVERFLOW have no path. A reader may
 * receive a record in parts. */
typedef struct isogate_change { /* 16 bytes */
  uint32_t size;                /* of the record: 16 + path_length + from_length */
  uint32_t type;                /* ISOGATE_CHANGE_*; a reader skips what it does not know */
  uint32_t flags;               /* ISOGATE_CHANGE_DIRECTORY; unknown bits are ignored */
  uint16_t path_length;         /* at most ISOGATE_CHANGE_MAX_PATH, as the next */
  uint16_t from_length;         /* 0 but for RENAMED */
} isogate_change;

/* ---- connections to ports ------------------------------------------------------------------ */

typedef struct isogate_connect_request {
  uint32_t struct_size;
  uint32_t flags;    /* 0 */
  uint32_t port;     /* TCP, 1 to 65535 */
  int32_t stream_fd; /* a connected stream socket, which may be non-blocking: its bytes go to the port, those of
                        the port to it. Each direction ends separately, by shutdown(SHUT_WR), on both the socket
                        and the connection */
  int32_t ready_fd;  /* an eventfd: the plugin writes 1 to it once it has connected, and the call continues. A
                        call that returns before has not connected */
  uint32_t reserved; /* 0 */
} isogate_connect_request;

/* ---- evidence ------------------------------------------------------------------------------ */

#define ISOGATE_EVIDENCE_MEASURED (1u << 0)        /* the fields up to visible_processes, all of them */
#define ISOGATE_EVIDENCE_NETWORK (1u << 1)         /* every address behind the REACHED bits was tried */
#define ISOGATE_EVIDENCE_REACHED_GATEWAY (1u << 2) /* a listener of this gateway answered */
#define ISOGATE_EVIDENCE_REACHED_METADATA (1u << 3)
#define ISOGATE_EVIDENCE_LIMITS_MAX 16u /* never changes: isogate_evidence has room for these */

/* The gateway compares this with the claim after every open(), and closes a sandbox that does not fit:
 *
 *   isolation from open()        what must have been measured inside
 *   NONE                         nothing; with ISOGATE_CAP_EVIDENCE: MEASURED
 *   NAMESPACE, CONTAINER, VM     MEASURED. All five capability sets 0, the bounding set too; no_new_privs 1;
 *                                seccomp_mode 2. None of ns_mnt, ns_pid, ns_net, ns_ipc and ns_uts is 0 or that
 *                                of the gateway. ns_pid, ns_ipc and ns_uts are not those every kernel starts
 *                                with: 0xEFFFFFFC, 0xEFFFFFFF, 0xEFFFFFFE. With the locality CLUSTER or GATEWAY
 *                                none is compared with the gateway's: that is another kernel
 *   VM, with another locality    the same without the namespaces, whose numbers two kernels share. Instead
 *                                boot_id, which must be another one than this machine's
 *
 *   asked for                    what must have been measured
 *   egress DENY                  NETWORK; neither REACHED_GATEWAY nor REACHED_METADATA
 *   egress PROXY                 NETWORK; not REACHED_METADATA
 *   a limit, not best effort     if MEASURED or isolated: it is among `limits`, with this value or a lower one
 *   UID_PER_SANDBOX, by root     uid is the one that open() answered, and not 0
 *   PORTS                        MEASURED and ns_net; not REACHED_GATEWAY; another ns_net than the gateway's or, on
 *                                another kernel, NETWORK
 *
 * A backend that cannot measure all this claims ISOGATE_ISOLATION_NONE, whatever it runs in. It then serves only
 * operators who wrote allow_unisolated: true. The fields that are not named here are not compared. Two things that
 * isolation above NONE needs are not measured: a root of its own, and a uid that no other sandbox has. */
typedef struct isogate_evidence { /* measured inside by the backend's own code, before any tenant's runs */
  uint32_t struct_size;
  uint32_t flags; /* ISOGATE_EVIDENCE_* */
  uint32_t uid, gid;
  uint32_t no_new_privs; /* 0 or 1 */
  uint32_t seccomp_mode; /* as in /proc/self/status */
  uint64_t cap_inheritable, cap_permitted, cap_effective, cap_bounding, cap_ambient;
  uint64_t ns_mnt, ns_pid, ns_net, ns_ipc, ns_uts, ns_user, ns_cgroup; /* inode numbers */
  uint64_t visible_processes; /* numeric directories in its /proc */
  uint32_t limit_count;       /* at most ISOGATE_EVIDENCE_LIMITS_MAX */
  uint32_t reserved;          /* 0 */
  /* In force, read back; what is not listed is not limited. Inside the struct, not behind a pointer, because
     evidence is a value that outlives the call. */
  isogate_limit limits[ISOGATE_EVIDENCE_LIMITS_MAX];
  /* VM: /proc/sys/kernel/random/boot_id as a program inside reads it, 36 characters of [0-9a-f-] and a NUL. It
     counts only if nothing is mounted over that file. Empty: not measured. */
  char boot_id[40];
} isogate_evidence;

typedef struct isogate_evidence_request {
  uint32_t struct_size;
  uint32_t gateway_port;       /* tried on every address a sandbox may know; 0: not tried */
  isogate_str gateway_address; /* numeric */
  isogate_str gateway_listeners; /* every TCP listener of the gateway, the one above first: numeric
                                    "ip:port" or "[ip]:port", one space between. All are tried. */
} isogate_evidence_request;

/* ---- what the host offers ------------------------------------------------------------------ */

#define ISOGATE_LOG_DEBUG 0u
#define ISOGATE_LOG_INFO 1u
#define ISOGATE_LOG_WARN 2u
#define ISOGATE_LOG_ERROR 3u

#define ISOGATE_HOST_ALLOW_UNISOLATED (1u << 0) /* the operator wrote allow_unisolated: true */
#define ISOGATE_HOST_PROBE_ONLY (1u << 1)       /* no sandbox will be opened: create nothing in advance */
#define ISOGATE_HOST_MANY_TENANTS (1u << 2)     /* more than one tenant may call: no name, uid or time that
                                                   a tenant sees may reveal another tenant's agents */
#define ISOGATE_HOST_LIMITS_BEST_EFFORT (1u << 3) /* the operator wrote limits: best_effort for this backend: its
                                                     own default limits apply as far as it can enforce them */

typedef struct isogate_shared_dir { /* readable by every sandbox, writable by none */
  isogate_str prefix;               /* first component(s) of a workspace path, without slashes around */
  isogate_str path;                 /* absolute, on this host */
} isogate_shared_dir;

#define ISOGATE_EVENTS_EXTENSION "isogate.events/1" /* reserved */

typedef struct isogate_host { /* valid until destroy() returns; functions are [any] */
  uint32_t struct_size;
  uint32_t abi_minor;
  uint32_t flags;    /* ISOGATE_HOST_* */
  uint32_t reserved; /* 0 */
  void* ctx;
  void (*log)(void* ctx, uint32_t level, isogate_str message);
  /* A struct declared in the extension's own header; NULL when the host does not have it. Version 1.0 has
     none. ISOGATE_EVENTS_EXTENSION is reserved for what a backend reports by itself: a sandbox that ended. */
  const void* (*get_extension)(void* ctx, const char* id);
  isogate_str instance;      /* this gateway's name, for labels */
  isogate_str backend_name;  /* as configured */
  isogate_str sandboxes_dir; /* absolute; the backend creates and owns <sandbox_id>/ below it. Shared by all
                                backends, and only the gateway's user may write there: if that is root, only
                                a plugin that RUNS_AS_ROOT */
  isogate_str uids_dir;      /* absolute; registry of uids in use, shared by all backends of this gateway */
  isogate_str shell;         /* absolute, as configured */
  isogate_str toolchain_path; /* put in front of PATH; may be empty */
  const isogate_shared_dir* shared_dirs;
  uint64_t shared_dir_count;
} isogate_host;

/* ---- the plugin ---------------------------------------------------------------------------- */

#define ISOGATE_ISOLATION_NONE 0u /* the host's kernel, files and processes */
#define ISOGATE_ISOLATION_NAMESPACE 10u
#define ISOGATE_ISOLATION_CONTAINER 20u
#define ISOGATE_ISOLATION_VM 30u

#define ISOGATE_LOCALITY_PROCESS 1u /* a child of the gateway */
#define ISOGATE_LOCALITY_HOST 2u    /* on this machine, isolated */
#define ISOGATE_LOCALITY_DAEMON 3u  /* behind a container engine */
#define ISOGATE_LOCALITY_CLUSTER 4u
#define ISOGATE_LOCALITY_GATEWAY 5u /* behind another gateway */

#define ISOGATE_CAP_PTY (1ull << 0)
#define ISOGATE_CAP_USER (1ull << 1)            /* user in a request */
#define ISOGATE_CAP_LIMIT_MEMORY (1ull << 2)    /* of one exec, as the next two */
#define ISOGATE_CAP_LIMIT_CPU (1ull << 3)
#define ISOGATE_CAP_LIMIT_PIDS (1ull << 4)
#define ISOGATE_CAP_SANDBOX_LIMIT_DISK (1ull << 5) /* of a whole sandbox: the limits in its spec */
#define ISOGATE_CAP_SCOPE_SANDBOX (1ull << 6)   /* file calls with ISOGATE_SCOPE_SANDBOX */
#define ISOGATE_CAP_EGRESS_DENY (1ull << 7)
#define ISOGATE_CAP_UID_PER_SANDBOX (1ull << 8) /* two sandboxes never share a uid */
#define ISOGATE_CAP_PERSISTENT (1ull << 9)      /* the workspace survives close(STOP) */
#define ISOGATE_CAP_EVIDENCE (1ull << 10) /* it has evidence(): required of any isolation above NONE, of
                                             EGRESS_DENY and of PORTS */
#define ISOGATE_CAP_PROVEN_EXECS (1ull << 11) /* every exec result is PROVEN; one that is not is unknown */
/* Limits of one exec, enforced by sampling what it uses and ending or stopping it: between two samples it may
 * use more. Used only with ISOGATE_EXEC_LIMITS_SAMPLED, which the operator configures. */
#define ISOGATE_CAP_LIMIT_MEMORY_SAMPLED (1ull << 12)
#define ISOGATE_CAP_LIMIT_CPU_SAMPLED (1ull << 13)
#define ISOGATE_CAP_LIMIT_PIDS_SAMPLED (1ull << 14)
#define ISOGATE_CAP_SANDBOX_LIMIT_MEMORY (1ull << 15)
#define ISOGATE_CAP_SANDBOX_LIMIT_CPU (1ull << 16)
#define ISOGATE_CAP_SANDBOX_LIMIT_PIDS (1ull << 17)
/* It counts the disk of a sandbox and refuses file calls beyond the limit, but programs can exceed it. */
#define ISOGATE_CAP_SANDBOX_DISK_ADVISORY (1ull << 18)
#define ISOGATE_CAP_MERGE_STDERR (1ull << 19) /* ISOGATE_EXEC_MERGE_STDERR */
#define ISOGATE_CAP_IMAGE (1ull << 22)        /* ISOGATE_OPTION_IMAGE */
#define ISOGATE_CAP_KEPT_EXECS (1ull << 23)   /* it has isogate_kept_execs (kept_exec.h) */
#define ISOGATE_CAP_WATCH (1ull << 20)        /* it has watch() */
#define ISOGATE_CAP_PORTS (1ull << 21) /* connect(): each sandbox has a network of its own, whose loopback is
                                          neither the host's nor another sandbox's */

#define ISOGATE_PROBE_AVAILABLE 1u
#define ISOGATE_PROBE_DEGRADED 2u /* serves with less than its descriptor promises; detail says what */
#define ISOGATE_PROBE_UNAVAILABLE 3u

typedef struct isogate_probe { /* the truth on this host, now */
  uint32_t struct_size;
  uint32_t verdict;   /* ISOGATE_PROBE_* */
  uint32_t isolation; /* ISOGATE_ISOLATION_* */
  uint32_t locality;  /* ISOGATE_LOCALITY_* */
  uint64_t capabilities;
  char detail[1000]; /* NUL-terminated; one line a person can act on */
} isogate_probe;

typedef struct isogate_backend isogate_backend; /* the plugin's, opaque */
typedef struct isogate_sandbox isogate_sandbox; /* the plugin's, opaque */

#define ISOGATE_EXEC_EXTENSION "isogate.exec/1" /* kept_exec.h */

/* An optional function may be NULL: the host then answers ISOGATE_UNSUPPORTED. One that a claimed capability
 * needs is not optional. */
typedef struct isogate_backend_api {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */

  /* [main] config_json has been validated against config_schema_json. Returns quickly, without network I/O.
     ISOGATE_INVALID_ARGUMENT: the configuration is wrong, so that the gateway does not start; see isogate_error.
     After another failure it is not called again before a reload or a restart: probe() reports outages. */
  isogate_status (*create)(const isogate_host* host, isogate_str config_json, isogate_backend** out,
                           isogate_error* error);
  /* [main] Called once at most, after every sandbox is closed and no call is left. If a close failed, or a call
     did not return, the process exits without it, as after a crash: nothing that must happen depends on it. When
     it returns, all threads of the plugin have been joined. It may take 30 seconds. */
  void (*destroy)(isogate_backend* backend);
  /* [any] At any time, every 30 seconds by default, every 2 after an outage began. Cheap; changes nothing. */
  isogate_status (*probe)(isogate_backend* backend, const isogate_call* call, isogate_probe* out,
                          isogate_error* error);
  /* [any] Creates the sandbox, or re-attaches to it. Never two at once for one sandbox_id, and never for one that
     is open. */
  isogate_status (*open)(isogate_backend* backend, const isogate_call* call,
                         const isogate_sandbox_spec* spec, isogate_sandbox** out,
                         isogate_sandbox_info* info, isogate_error* error);
  /* [any] No other call of that sandbox is running. After ISOGATE_OK and ISOGATE_NO_SANDBOX, which means that it
     had ended already, it is closed and the pointer is invalid. After any other failure the pointer is valid, and
     the only call that follows is close again. STOP and PURGE leave nothing running: they fail while something
     still runs. PURGE of a sandbox that has ended removes what remains of it: ISOGATE_OK. After ISOGATE_NO_SANDBOX
     its workspace may remain: the host opens the sandbox again and purges that one. If that is ISOGATE_NO_SANDBOX,
     too, it counts as purged if open() with ATTACH_ONLY then finds none; else the caller gets an error. The host
     itself calls it with DETACH before it opens a sandbox again of which a call has answered ISOGATE_NO_SANDBOX. */
  isogate_status (*close)(isogate_sandbox* sandbox, const isogate_call* call, uint32_t mode,
                          isogate_error* error);
  /* [any] Every sandbox of this instance that exists, open or not. */
  isogate_status (*enumerate)(isogate_backend* backend, const isogate_call* call,
                              const isogate_record_sink* sink, isogate_error* error);

  /* [box] Runs one program; returns when it has ended and no process that it started is left. A call that
     is cancelled before the program starts: ISOGATE_CANCELLED. Later: ISOGATE_OK, the result has KILLED.
     Any error but ISOGATE_LOST asserts that nothing was started: the caller may repeat the exec. The host takes
     as ISOGATE_LOST: an unknown status, an end that no program can have, an error after output. Closes
     none of the descriptors, and nothing writes to them after the call has returned. */
  isogate_status (*exec)(isogate_sandbox* sandbox, const isogate_call* call,
                         const isogate_exec_request* request, isogate_exec_result* result,
                         isogate_error* error);

  /* [box] Writes `limit` bytes of a regular file from `offset` to fd; *entry describes the file as opened.
     Never blocks on the file, and ends at the size it had when opened (if the kernel knows it). The type of
     *entry is ISOGATE_ENTRY_REGULAR. */
  isogate_status (*read)(isogate_sandbox* sandbox, const isogate_call* call,
                         const isogate_file_request* request, isogate_entry* entry,
                         isogate_error* error);
  /* [box] Replaces the file by the bytes read from fd, whole or not at all. Nothing is committed unless
     complete_fd is readable at the end of fd. Without REPLACE, a file whose permission bits do not let the user
     write it is ISOGATE_PERMISSION_DENIED. Root counts as the owner of every file. *written: the bytes of the
     body; another number means that the write is lost. */
  isogate_status (*write)(isogate_sandbox* sandbox, const isogate_call* call,
                          const isogate_file_request* request, uint64_t* written,
                          isogate_error* error);
  /* [box] The entries of a directory, itself excluded; with RECURSIVE parents before children. Entries that no
     path can name are left out, and after all others it fails with ISOGATE_RESOURCE_EXHAUSTED and the os_errno
     ENAMETOOLONG: the caller gets the listing, marked as truncated. After any other failure it gets none. */
  isogate_status (*list)(isogate_sandbox* sandbox, const isogate_call* call,
                         const isogate_file_request* request, const isogate_entry_sink* sink,
                         isogate_error* error);
  /* [box] Does not follow a symlink in the last component. */
  isogate_status (*stat)(isogate_sandbox* sandbox, const isogate_call* call,
                         const isogate_file_request* request, isogate_entry* entry,
                         isogate_error* error);
  /* [box] optional. An existing directory is OK unless EXCLUSIVE. */
  isogate_status (*mkdir)(isogate_sandbox* sandbox, const isogate_call* call,
                          const isogate_file_request* request, isogate_error* error);
  /* [box] optional. Renames path to path_to, atomically; replaces a file unless EXCLUSIVE, as write does. */
  isogate_status (*move)(isogate_sandbox* sandbox, const isogate_call* call,
                         const isogate_file_request* request, isogate_error* error);
  /* [box] optional. Removes a file, a symlink itself or an empty directory; with RECURSIVE a tree. */
  isogate_status (*remove)(isogate_sandbox* sandbox, const isogate_call* call,
                           const isogate_file_request* request, isogate_error* error);
  /* [box] With ISOGATE_CAP_EVIDENCE. What a program in the sandbox can observe of its isolation; isogate_evidence
     lists what the gateway accepts. Called after every open. Measured before the first program of a tenant;
     after an open that was not FRESH, returns that measurement. */
  isogate_status (*evidence)(isogate_sandbox* sandbox, const isogate_call* call,
                             const isogate_evidence_request* request, isogate_evidence* out,
                             isogate_error* error);
  /* [any] optional. A struct declared in the extension's own header, such as orphans.h, or NULL. */
  const void* (*get_extension)(isogate_backend* backend, const char* id);
  /* [box] optional, with ISOGATE_CAP_WATCH. Writes isogate_change records to fd, a pipe, until the call is
     cancelled (ISOGATE_CANCELLED) or the directory is removed or moved away (ISOGATE_OK). Reports changes in
     the directory, with RECURSIVE in the whole tree below it. A directory that appears there later is watched
     too, and its existing entries are reported as CREATED. Never waits for the reader: when the pipe is full,
     changes are dropped, and OVERFLOW follows once it has room. Reports no name that the request's user could
     not list. Follows no symlink and enters no other mount below the directory.
     ISOGATE_RESOURCE_EXHAUSTED, at once or later: there are more directories than it can watch. */
  isogate_status (*watch)(isogate_sandbox* sandbox, const isogate_call* call,
                          const isogate_file_request* request, isogate_error* error);
  /* [box] optional, with ISOGATE_CAP_PORTS. Connects to 127.0.0.1, then [::1], in the network of the sandbox,
     never in the host's, and copies bytes both ways until both directions have ended: ISOGATE_OK. Waits only a
     few seconds for the connection; once connected there is no time limit. Buffers no more than the next write:
     a slow reader blocks the sender. ISOGATE_NOT_FOUND: nothing accepts connections on that port (os_errno:
     ECONNREFUSED or ETIMEDOUT); ISOGATE_UNSUPPORTED: this sandbox has no network of its own; ISOGATE_IO: the
     connection broke off after it was established; ISOGATE_CANCELLED: cancel_fd fired, at any time, and the
     connection is closed. */
  isogate_status (*connect)(isogate_sandbox* sandbox, const isogate_call* call,
                            const isogate_connect_request* request, isogate_error* error);
} isogate_backend_api;

#define ISOGATE_PLUGIN_RUNS_AS_ROOT (1u << 0) /* its host stays uid 0, with linux_capabilities only */

typedef struct isogate_plugin { /* static storage; C strings are NUL-terminated */
  uint32_t magic;               /* these four never move, in any version */
  uint16_t abi_major;
  uint16_t abi_minor; /* the least the plugin needs, normally 0 */
  uint32_t struct_size;
  uint32_t flags;     /* ISOGATE_PLUGIN_* */
  uint32_t isolation; /* at best; probe() says what is true here */
  uint32_t locality;
  uint64_t capabilities;       /* at best */
  uint64_t linux_capabilities; /* bits of capabilities(7) its host keeps when started by root */
  const char* id;              /* [a-z0-9][a-z0-9.-]{0,62}: "local", "com.example.firecracker" */
  const char* version;         /* of the plugin, semver */
  const char* summary;
  const char* vendor;
  const char* license;
  const char* config_schema_json; /* JSON Schema for create(), with additionalProperties wherever it has properties;
                                     NULL: it takes no configuration */
  const isogate_backend_api* api;
} isogate_plugin;

typedef const isogate_plugin* (*isogate_plugin_entry_fn)(uint32_t host_major, uint32_t host_minor);

#ifdef __cplusplus
}
#endif
#endif
