// Isolation is measured: compares a sandbox's evidence at open with its backend's claim and with
// the request. A mismatch closes the sandbox. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isogate/backend.h"
#include "lib/error.h"
#include "lib/limits.h"

namespace isogate::front {

struct Namespaces {
  uint64_t mnt = 0, pid = 0, net = 0, ipc = 0, uts = 0;  // inode numbers
  std::string boot_id;                                   // of their kernel; empty: not known
};

// Of this process, from /proc.
Result<Namespaces> own_namespaces();

struct Claim {
  uint32_t isolation = ISOGATE_ISOLATION_NONE;  // of this sandbox, as open() answered
  uint32_t locality = 0;                        // as probed
  uint64_t capabilities = 0;                    // as probed
  uint32_t uid = UINT32_MAX;                    // as open() answered
  uint32_t egress = ISOGATE_EGRESS_UNSET;       // as asked
  Limits limits;                                // as asked
  bool limits_best_effort = false;              // the operator wrote limits.mode: best_effort
  bool started_by_root = false;                 // the gateway was
};

// nullopt: nothing contradicts the claim. Otherwise every mismatch in words, "; " between.
//
//   isolation ≥ namespace          measured at all; all five capability sets empty; no_new_privs; a seccomp
//                                  filter; own mnt, pid, net, ipc and uts namespaces: not the initial ones,
//                                  nor those of `host` unless the locality is another kernel's
//   vm, on this machine            the same, with the boot of another kernel than that of `host` in place of
//                                  the namespaces: two kernels use the same inode numbers
//   egress: deny                   tried the network, reached neither gateway nor metadata address
//   egress: proxy                  tried the network, did not reach the metadata address
//   UID_PER_SANDBOX, under root    a uid that is known, not 0, and the one the backend named
//   limits, unless best effort     each that was asked for is in force and not above what was asked
//   EVIDENCE among the capabilities   measured
//
// An unknown isolation level is a mismatch. Below namespace, without the EVIDENCE capability, a
// missing measurement is no mismatch: `none` claims nothing.
std::optional<std::string> evidence_mismatch(const isogate_evidence& evidence, const Claim& claim,
                                             const Namespaces& host);

// Why the gateway may not connect to a port of the sandbox: a listener on its loopback may belong to
// this gateway, or its host. nullopt: its network was measured and is another one. An unknown network
// is refused. The boot of another kernel proves another network for a virtual machine only.
std::optional<std::string> ports_obstacle(const isogate_evidence& evidence, const Claim& claim,
                                          const Namespaces& host);

}  // namespace isogate::front
