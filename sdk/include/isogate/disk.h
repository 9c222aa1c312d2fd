/* isogate extension "isogate.disk/1": how much disk a sandbox uses, and may use. backend.h's rules hold.
 *
 * A backend that limits or counts the disk of its sandboxes returns a struct isogate_disk from get_extension().
 */
#ifndef ISOGATE_DISK_H
#define ISOGATE_DISK_H

#include "isogate/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ISOGATE_DISK_EXTENSION "isogate.disk/1"

#define ISOGATE_DISK_ENFORCED (1u << 0) /* programs meet the limit too; without it file calls alone do */
#define ISOGATE_DISK_EXACT (1u << 1)    /* what is used was counted to its end, and since programs ran */

typedef struct isogate_disk_use {
  uint32_t struct_size;
  uint32_t flags; /* ISOGATE_DISK_* */
  uint64_t used_bytes;
  uint64_t limit_bytes; /* 0: not limited */
  uint64_t used_files;  /* inodes */
  uint64_t limit_files; /* 0: not limited */
} isogate_disk_use;

typedef struct isogate_disk { /* static storage */
  uint32_t struct_size;
  uint32_t reserved;
  /* [box] Of an open sandbox; cheap, however much is in it. ISOGATE_UNSUPPORTED: nothing is known of it. */
  isogate_status (*use)(isogate_sandbox* sandbox, const isogate_call* call, isogate_disk_use* out,
                        isogate_error* error);
} isogate_disk;

#ifdef __cplusplus
}
#endif

#endif /* ISOGATE_DISK_H */
