/* isogate extension "isogate.orphans/1": what this backend has made elsewhere, an engine or a cluster, and no
 * sandbox here claims any more, as after the loss of a state directory. backend.h's rules hold.
 *
 * A backend that labels what it makes returns a struct isogate_orphans from get_extension(). An orphan has the
 * labels of this instance and backend and names a sandbox, and that sandbox has no directory in sandboxes_dir,
 * or another object of that kind on record there. Nothing else is ever listed or removed; what cannot be looked
 * at fails the call. The host calls remove() for an operator alone, never by itself. Functions are [any].
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
  /* A record for each object: its sandbox; as handle a line for the operator that names its kind and its id,
     "container 4f1c…"; ISOGATE_SANDBOX_RUNS where programs may run in it. */
  isogate_status (*list)(isogate_backend* backend, const isogate_call* call,
                         const isogate_record_sink* sink, isogate_error* error);
  /* All objects of one sandbox. `flags`: ISOGATE_ORPHANS_RUNNING, also where programs may run; without it that
     is ISOGATE_INVALID_ARGUMENT, and nothing is removed. ISOGATE_NOT_FOUND: it has no orphan. May be repeated
     after a failure. */
  isogate_status (*remove)(isogate_backend* backend, const isogate_call* call, isogate_str sandbox_id,
                           uint32_t flags, isogate_error* error);
} isogate_orphans;

#ifdef __cplusplus
}
#endif

#endif /* ISOGATE_ORPHANS_H */
