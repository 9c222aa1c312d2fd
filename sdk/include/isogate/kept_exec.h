/* isogate extension "isogate.exec/1": execs that outlive their host. The next host finds them again. The rules
 * of backend.h apply.
 *
 * A backend with ISOGATE_CAP_KEPT_EXECS returns a struct isogate_kept_execs from get_extension(). Its programs
 * end when they are cancelled, when their sandbox ends, or after `grace_sec` without a host.
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
  int32_t detach_fd;  /* never read; readable (POLLIN): the call returns ISOGATE_LOST at once, and the program
                         keeps running. -1: none */
  int32_t input_end_fd; /* never read; the end of stdin_fd ends the program's input only if this is
                           readable, because a host that dies also ends its pipes. -1: the input never ends */
  int32_t state_fd;     /* rejoin(): a pipe that takes one isogate_kept_state before any output; else -1 */
} isogate_kept_exec;

#define ISOGATE_KEPT_STDIN_OPEN (1u << 0) /* bytes from stdin_fd reach the program */

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
  /* [box] The same for the rest of an exec that was started; a call that still has it ends. Output begins with
     the oldest kept byte, at least the last 64 KiB of each stream. Of the request only exec_id and the
     descriptors count. ISOGATE_NOT_FOUND: no such exec, or no longer; an exec that has ended stays for at least
     five minutes, unless many have ended since. */
  isogate_status (*rejoin)(isogate_sandbox* sandbox, const isogate_call* call,
                           const isogate_exec_request* request, const isogate_kept_exec* kept,
                           isogate_exec_result* result, isogate_error* error);
} isogate_kept_execs;

#ifdef __cplusplus
}
#endif

#endif /* ISOGATE_KEPT_EXEC_H */
