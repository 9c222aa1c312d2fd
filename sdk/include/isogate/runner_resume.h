/* A session that outlives its streams, below the frames of runner_protocol.h: what `isogate-runner serve`
 * speaks on every stream that `isogate-runner attach` brings. docs/runner-protocol.md describes it; numbers are
 * little-endian, structs are packed as declared here.
 *
 * On each stream the client sends isogate_runner_resume, the runner replies with isogate_runner_resumed, and
 * then both send chunks: a header, then `size` bytes of the frames. Each side keeps what it sent until it is
 * acknowledged. On the session's next stream it sends the bytes again that the other side has not received. A
 * violation ends the session.
 */
#ifndef ISOGATE_RUNNER_RESUME_H
#define ISOGATE_RUNNER_RESUME_H

#include <stdint.h>

#define ISOGATE_RUNNER_RESUME_MAGIC 0x52525349u /* "ISRR" */
#define ISOGATE_RUNNER_RESUME_VERSION 1u

#define ISOGATE_RUNNER_KEPT (1u << 20) /* unacknowledged bytes, above which a side accepts nothing more \
                                        */
#define ISOGATE_RUNNER_MAX_CHUNK (64u << 10) /* size of a chunk */
#define ISOGATE_RUNNER_ACK_EVERY (64u << 10) /* bytes after which they are acknowledged */
#define ISOGATE_RUNNER_MAX_GRACE_SEC 300u    /* a longer grace is shortened to this */
#define ISOGATE_RUNNER_MAX_SESSIONS 16u      /* of one runner */

typedef struct isogate_runner_resume { /* client → runner; 64 bytes */
  uint32_t magic, version;
  uint8_t session[16]; /* all zero: a new one */
  uint8_t owner[16];   /* the client's identity: its new session ends its older ones */
  uint32_t grace_sec;  /* how long a new session stays without a stream */
  uint32_t reserved[3];
  uint64_t received; /* bytes of the frames that the client has received so far */
} isogate_runner_resume;

#define ISOGATE_RUNNER_RESUMED 0u
#define ISOGATE_RUNNER_UNKNOWN 1u /* no such session, or it cannot continue from `received` */
#define ISOGATE_RUNNER_REFUSED 2u /* no new session can be created now */

typedef struct isogate_runner_resumed { /* runner → client; 40 bytes */
  uint32_t magic, version;
  uint32_t status, reserved;
  uint8_t session[16]; /* a secret of both sides */
  uint64_t received;   /* as above, of the runner */
} isogate_runner_resumed;

#define ISOGATE_RUNNER_GOODBYE (1u << 0) /* of size 0: the session has ended, nothing is kept */

typedef struct isogate_runner_chunk { /* both ways; 16 bytes */
  uint32_t size;                      /* of what follows; 0: an acknowledgement alone */
  uint32_t flags;
  uint64_t received; /* bytes of the frames that its sender has received so far */
} isogate_runner_chunk;

#endif
