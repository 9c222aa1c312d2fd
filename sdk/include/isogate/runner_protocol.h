/* The protocol between a backend and isogate-runner, the program that runs commands inside a container, a pod
 * or a machine. docs/runner-protocol.md describes it; this header is the layout.
 *
 * Both sides send frames over any reliable byte stream: isogate_runner_frame, then `size` bytes. All numbers
 * are little-endian, structs are packed as declared here. One side is the client (the backend), the other the
 * runner. The client sends HELLO first, the runner replies with HELLO or closes.
 *
 * A call is a stream. The client numbers each stream above all that it used before on this connection. A
 * stream begins with one request frame and ends with one RESULT. Frames for a stream that has ended were in
 * transit, and are skipped. Frames of different streams are interleaved in any order.
 *
 * A violation closes the connection: an unknown type or flag, a size above the type's, a stream number that
 * goes backwards, more bytes than credit. Neither side allocates before it has checked a size.
 */
#ifndef ISOGATE_RUNNER_PROTOCOL_H
#define ISOGATE_RUNNER_PROTOCOL_H

#include <stdint.h>

#define ISOGATE_RUNNER_MAGIC 0x31525349u /* "ISR1" */
#define ISOGATE_RUNNER_MAJOR 1u
#define ISOGATE_RUNNER_MINOR 0u

typedef struct isogate_runner_frame { /* 12 bytes */
  uint32_t size;                      /* of what follows */
  uint16_t type;                      /* ISOGATE_RUNNER_* below */
  uint16_t flags;                     /* 0, but for ISOGATE_RUNNER_WITH_DESCRIPTORS */
  uint32_t stream;                    /* 0: the connection itself */
} isogate_runner_frame;

/* On a Unix socket between processes of one kernel: descriptors came with the first byte of this frame. EXEC:
 * those of stdin, stdout, stderr that its flags name, in this order; the program gets these descriptors.
 * READ, WRITE, WATCH: one, which takes or supplies the bytes. CONNECT: one, the stream socket of the
 * connection. Then there is no DATA or CREDIT for that descriptor, and END only for a WRITE: the body is
 * complete once the descriptor has ended and END has arrived, in either order. CANCEL instead of END: the
 * sender is gone, nothing is committed. */
#define ISOGATE_RUNNER_WITH_DESCRIPTORS (1u << 0)

#define ISOGATE_RUNNER_MAX_REQUEST (4u << 20) /* size of EXEC */
#define ISOGATE_RUNNER_MAX_FRAME (64u << 10)  /* size of any other frame */
#define ISOGATE_RUNNER_WINDOW (256u << 10)    /* credit of each channel when its stream begins, bytes */
#define ISOGATE_RUNNER_WIDEST (1u << 20)      /* credit grows to this while the receiver keeps up, bytes */
#define ISOGATE_RUNNER_MAX_STREAMS 4096u      /* calls at a time; another one gets RESOURCE_EXHAUSTED */

/* client → runner */
#define ISOGATE_RUNNER_HELLO 1u    /* isogate_runner_hello; both ways */
#define ISOGATE_RUNNER_EXEC 2u     /* isogate_runner_exec, strings */
#define ISOGATE_RUNNER_FILE 3u     /* isogate_runner_file, strings */
#define ISOGATE_RUNNER_EVIDENCE 4u /* isogate_runner_measure, strings: the gateway's address, gateway_listeners of
                                      isogate_evidence_request */
#define ISOGATE_RUNNER_CONTROL 5u  /* isogate_control (backend.h): a signal, the terminal's size */
#define ISOGATE_RUNNER_CANCEL 6u   /* nothing; the call ends as soon as it can, with its RESULT */
#define ISOGATE_RUNNER_PING 7u     /* up to 64 bytes; on stream 0 */
#define ISOGATE_RUNNER_PROVE 8u    /* nothing; starts a program of the runner's own as EXEC would, and sends RESULT
                                      once that is reaped */
#define ISOGATE_RUNNER_CONNECT 9u  /* isogate_runner_connect; connects to 127.0.0.1, then [::1]; DATA of stdin goes
                                      to that port, DATA of stdout comes from it. END of each ends that direction;
                                      if RESULT is OK, both have ended before it */
#define ISOGATE_RUNNER_REJOIN 10u /* isogate_runner_rejoin; the rest of an EXEC with EXEC_KEEP, after REJOINED.
                                     NOT_FOUND: no such exec. A stream that has it ends with LOST */

/* both ways */
#define ISOGATE_RUNNER_DATA 16u   /* isogate_runner_channel, bytes */
#define ISOGATE_RUNNER_END 17u    /* isogate_runner_channel: no more of it; of a WRITE's body: it is complete */
#define ISOGATE_RUNNER_CREDIT 18u /* isogate_runner_channel: the receiver has room for `bytes` more */

/* runner → client */
#define ISOGATE_RUNNER_RESULT 32u  /* isogate_runner_result, strings: the message; the last of its stream */
#define ISOGATE_RUNNER_ENTRIES 33u /* of LIST: isogate_runner_entry and its name, as many whole ones as fit; its
                                      size counts against the credit of channel stdout */
#define ISOGATE_RUNNER_PONG 34u    /* the bytes of PING */
#define ISOGATE_RUNNER_READY 35u   /* of CONNECT: nothing; the runner has connected. Before any DATA */

#define ISOGATE_RUNNER_REJOINED 36u /* of REJOIN: isogate_runner_rejoined. Before any DATA */

/* A string: uint32_t length, bytes. Strings follow their struct one after the other, with nothing after them. */

typedef struct isogate_runner_hello { /* 64 bytes */
  uint32_t magic;
  uint16_t major; /* equal, or the runner sends its own version in HELLO and closes */
  uint16_t minor; /* the lower of the two applies */
  uint32_t flags; /* ISOGATE_RUNNER_HAS_*; the client's: 0 */
  uint32_t pid;   /* the runner's, in its own pid namespace */
  uint32_t uid;
  uint32_t reserved;
  char build[40]; /* version, NUL-padded */
} isogate_runner_hello;

#define ISOGATE_RUNNER_HAS_DESCRIPTORS (1u << 0) /* it takes frames with descriptors on this connection */
#define ISOGATE_RUNNER_HAS_PTY (1u << 1)
#define ISOGATE_RUNNER_IS_INIT (1u << 2) /* pid 1: nothing inside can kill it */

#define ISOGATE_RUNNER_EXEC_PTY (1u << 0)
#define ISOGATE_RUNNER_EXEC_STDIN (1u << 1) /* else /dev/null; with a terminal: stdin is its input */
#define ISOGATE_RUNNER_EXEC_STDOUT (1u << 2)
#define ISOGATE_RUNNER_EXEC_STDERR (1u << 3)
#define ISOGATE_RUNNER_EXEC_LIMITS (1u << 4)       /* isogate_runner_limits follows the struct, and then `count`
                                                      times isogate_runner_limit */
#define ISOGATE_RUNNER_EXEC_MERGE_STDERR (1u << 5) /* stderr is stdout; without EXEC_STDERR */

#define ISOGATE_RUNNER_EXEC_KEEP (1u << 6) /* without descriptors: isogate_runner_keep follows the struct and its
                                              limits. After its session ends it runs on, for REJOIN */

typedef struct isogate_runner_keep { /* 24 bytes */
  uint8_t id[16];                    /* unique */
  uint32_t grace_sec;                /* killed after this time without a session; at least 1 */
  uint32_t reserved;                 /* 0 */
} isogate_runner_keep;

typedef struct isogate_runner_rejoin { /* 24 bytes */
  uint8_t id[16];
  uint32_t flags;    /* ISOGATE_RUNNER_EXEC_STDIN, STDOUT, STDERR: which of them the client uses */
  uint32_t reserved; /* 0 */
} isogate_runner_rejoin;

#define ISOGATE_RUNNER_REJOINED_STDIN (1u << 0) /* its input is open */

typedef struct isogate_runner_rejoined { /* 24 bytes */
  uint64_t stdout_offset, stderr_offset; /* of the first byte that follows */
  uint32_t flags;
  uint32_t reserved;
} isogate_runner_rejoined;

typedef struct isogate_runner_limit { /* 16 bytes, as isogate_limit in backend.h. What is unknown is refused. */
  uint32_t id;
  uint32_t reserved; /* 0 */
  uint64_t value;
} isogate_runner_limit;

typedef struct isogate_runner_limits { /* 8 bytes. What cannot be enforced is refused. */
  uint32_t count;
  uint32_t sampled; /* 1: they may be sampled where no cgroup is available */
} isogate_runner_limits;

typedef struct isogate_runner_exec { /* 24 bytes; strings: cwd, user, argv…, (key, value)… */
  uint32_t flags;                    /* ISOGATE_RUNNER_EXEC_* */
  uint32_t argc;
  uint32_t envc;
  uint16_t rows, cols;
  uint32_t reserved[2];
} isogate_runner_exec;

#define ISOGATE_RUNNER_READ 1u   /* sends DATA on channel stdout */
#define ISOGATE_RUNNER_WRITE 2u  /* takes DATA on channel stdin; committed only after its END, never without */
#define ISOGATE_RUNNER_LIST 3u   /* sends ENTRIES */
#define ISOGATE_RUNNER_STAT 4u
#define ISOGATE_RUNNER_MKDIR 5u
#define ISOGATE_RUNNER_MOVE 6u
#define ISOGATE_RUNNER_REMOVE 7u
#define ISOGATE_RUNNER_DISK_USE 8u /* how much the workspace uses, and may use */
#define ISOGATE_RUNNER_WATCH 9u    /* sends DATA on channel stdout, isogate_change records (backend.h), until it
                                      is cancelled or the directory is removed */

typedef struct isogate_runner_file { /* 40 bytes; strings: path, path_to, user */
  uint32_t verb;                     /* ISOGATE_RUNNER_READ … */
  uint32_t scope;                    /* as in isogate_file_request, and so on */
  uint32_t flags;
  uint32_t mode;
  uint64_t offset;
  uint64_t limit;
  uint64_t reserved;
} isogate_runner_file;

typedef struct isogate_runner_disk { /* 40 bytes, as isogate_disk_use in disk.h */
  uint32_t flags;                    /* ISOGATE_DISK_* */
  uint32_t reserved;
  uint64_t used_bytes, limit_bytes;
  uint64_t used_files, limit_files;
} isogate_runner_disk;

typedef struct isogate_runner_measure { /* 8 bytes; strings: numeric address, listeners; may be empty */
  uint32_t gateway_port;
  uint32_t reserved;
} isogate_runner_measure;

typedef struct isogate_runner_connect { /* 8 bytes */
  uint32_t port;                        /* TCP, 1 to 65535 */
  uint32_t reserved;
} isogate_runner_connect;

#define ISOGATE_RUNNER_STDIN 0u
#define ISOGATE_RUNNER_STDOUT 1u
#define ISOGATE_RUNNER_STDERR 2u

typedef struct isogate_runner_channel { /* 8 bytes */
  uint32_t channel;                     /* ISOGATE_RUNNER_STDIN … */
  uint32_t bytes;                       /* CREDIT: how many more; DATA, END: 0 */
} isogate_runner_channel;

typedef struct isogate_runner_entry { /* 32 bytes, then `name_length` bytes */
  uint32_t type;                      /* ISOGATE_ENTRY_* */
  uint32_t mode;
  uint64_t size;
  int64_t mtime_ns;
  uint32_t name_length; /* at most 4,095 */
  uint32_t reserved;
} isogate_runner_entry;

/* LIST may send ENTRIES and then fail. */
typedef struct isogate_runner_result { /* 200 bytes; one string of at most 1,000 bytes: the message of a failure;
                                          of an EVIDENCE that succeeded its isogate_runner_limit in force; of a
                                          DISK_USE isogate_runner_disk; else empty */
  int32_t status;                      /* ISOGATE_OK … */
  int32_t os_errno;
  uint32_t exec_flags; /* ISOGATE_RESULT_* */
  int32_t exit_code;
  int32_t term_signal;
  uint32_t entry_type; /* READ, STAT */
  uint32_t entry_mode;
  uint32_t evidence_flags; /* ISOGATE_EVIDENCE_* */
  uint64_t wall_ns, cpu_ns, max_rss_bytes;
  uint64_t written; /* WRITE */
  uint64_t entry_size; /* READ: may be ISOGATE_SIZE_UNKNOWN */
  int64_t entry_mtime_ns;
  uint32_t uid, gid, no_new_privs, seccomp_mode; /* EVIDENCE, and so on */
  uint64_t cap_inheritable, cap_permitted, cap_effective, cap_bounding, cap_ambient;
  uint64_t ns_mnt, ns_pid, ns_net, ns_ipc, ns_uts, ns_user, ns_cgroup;
  uint64_t visible_processes;
} isogate_runner_result;

#endif
