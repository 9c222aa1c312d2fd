/* isogate extension "isogate.disk/1": how much disk a sandbox uses, and may use. The rules of backend.h apply.
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

#define ISOGATE_DISK_ENFORCED (1u << 0) /* the limit applies to programs too; without it only to file calls */
#define ISOGATE_DISK_EXACT (1u << 1)    /* the count is complete, and newer than the last program */

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
  /* [box] Of an open sandbox; cheap, whatever its size. ISOGATE_UNSUPPORTED: its use is not known. */
  isogate_status (*use)(isogate_sandbox* sandbox, const isogate_call* call, isogate_disk_use* out,
                        isogate_error* error);
} isogate_disk;

#ifdef __cplusplus
}
#endif

#endif /* ISOGATE_DISK_H */
