/* isogate extension "isogate.orphans/1": objects that this backend has created on an Engine or in a cluster, and
 * that no sandbox here claims any more, for example after the loss of a state directory. The rules of backend.h
 * apply.
 *
 * A backend that labels what it creates returns a struct isogate_orphans from get_extension(). An orphan has the
 * labels of this instance and backend and names a sandbox, and that sandbox has no directory in sandboxes_dir,
 * or another object of that kind on record there. Nothing else is ever listed or removed. The call fails if it
 * cannot inspect an object. The host calls remove() only for an operator, never by itself. Functions are [any].
 */
#ifndef ISOGATE_ORPHANS_H
#define ISOGATE_ORPHANS_H

#include "isogate/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ISOGATE_ORPHANS_EXTENSION "isogate.orphans/1"
#define ISOGATE_ORPHANS_RUNNING 1u

typedef struct isogate_orphans { /* static storage */
  uint32_t struct_size;
  uint32_t reserved;
  /* A record for each object: its sandbox; as handle a line for the operator with its kind and its id,
     "container 4f1c…"; ISOGATE_SANDBOX_RUNS if programs may run in it. */
  isogate_status (*list)(isogate_backend* backend, const isogate_call* call,
                         const isogate_record_sink* sink, isogate_error* error);
  /* Removes all objects of one sandbox. If programs may run in one, ISOGATE_ORPHANS_RUNNING in `flags` is
     required: without it the call is ISOGATE_INVALID_ARGUMENT and removes nothing. ISOGATE_NOT_FOUND: the
     sandbox has no orphan. May be repeated after a failure. */
  isogate_status (*remove)(isogate_backend* backend, const isogate_call* call, isogate_str sandbox_id,
                           uint32_t flags, isogate_error* error);
} isogate_orphans;

#ifdef __cplusplus
}
#endif

#endif /* ISOGATE_ORPHANS_H */
