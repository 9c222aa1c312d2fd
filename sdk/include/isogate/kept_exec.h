/* isogate extension "isogate.exec/1": execs that go on when their host ends, and are found again by the next one.
 * backend.h's rules hold.
 *
 * A backend with ISOGATE_CAP_KEPT_EXECS returns a struct isogate_kept_execs from get_extension(). Its programs
 * are ended by their cancellation, by the end of their sandbox, or after `grace_sec` in which no host was there.
 */
#ifndef ISOGATE_KEPT_EXEC_H
#define ISOGATE_KEPT_EXEC_H

#include "isogate/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct isogate_kept_exec { /* beside an isogate_exec_request */
  uint32_t struct_size;
  uint32_t grace_sec; /* start(): at least 1 */
  int32_t detach_fd;  /* an eventfd, never read; readable: the call returns ISOGATE_LOST at once, and the program
                         goes on. -1: none */
  int32_t input_end_fd; /* an eventfd, never read; the end of stdin_fd ends the program's input only where this is
                           readable. A host that dies ends its pipes, too. -1: no end does */
  int32_t state_fd;     /* rejoin(): a pipe that takes one isogate_kept_state before any output; else -1 */
} isogate_kept_exec;

#define ISOGATE_KEPT_STDIN_OPEN (1u << 0) /* what comes on stdin_fd reaches the program */

typedef struct isogate_kept_state { /* 24 bytes */
  uint64_t stdout_offset;           /* of the first byte that follows, from the beginning of the stream */
  uint64_t stderr_offset;
  uint32_t flags; /* ISOGATE_KEPT_* */
  uint32_t reserved;
} isogate_kept_state;

typedef struct isogate_kept_execs { /* static storage */
  uint32_t struct_size;
  uint32_t reserved;
  /* [box] As exec(). */
  isogate_status (*start)(isogate_sandbox* sandbox, const isogate_call* call,
                          const isogate_exec_request* request, const isogate_kept_exec* kept,
                          isogate_exec_result* result, isogate_error* error);
  /* [box] The same for the rest of one that was started; who was at it before is no more. Its output begins with
     the oldest that is kept, at least 64 KiB of each stream where there was so much. Of the request only exec_id
     and the descriptors count. ISOGATE_NOT_FOUND: there is none, or not any more; one that has ended is there for
     five minutes at least, unless many have ended since. */
  isogate_status (*rejoin)(isogate_sandbox* sandbox, const isogate_call* call,
                           const isogate_exec_request* request, const isogate_kept_exec* kept,
                           isogate_exec_result* result, isogate_error* error);
} isogate_kept_execs;

#ifdef __cplusplus
}
#endif

#endif /* ISOGATE_KEPT_EXEC_H */
