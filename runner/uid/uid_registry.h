// The uids of sandboxes: one Linux user per sandbox, the same one while the sandbox exists.
//
// The uid of a sandbox is SipHash-2-4 of its agent id % 60000 + 10000, or the next free one, wrapping around
// within 10000 … 69999. If several tenants may call, the tenant is hashed with the agent id. Earlier
// assignments stay. Never assigned: the uids of this process, 61184–65535 (systemd's dynamic users, nobody,
// -1 in 16 bits), every user and group of passwd and group and of the host's other user databases
// (getpwuid(3)), every subordinate range of subuid and subgid, and an unassigned uid that runs a process: a
// container's, for example. The gid is the uid.
//
// No tenant has the key of the hash, so that none can choose a name whose uid reveals that another tenant has
// an agent of some name. A tenant that opens enough agents still learns which uids others have, and one whose
// purged agent gets another uid learns that the former one is taken; the names stay hidden. An isogate
// without the key assigned FNV-1a 32 instead, which anybody can compute: such a uid may reveal its agent's
// name to whoever finds it taken, until the sandbox is purged.
//
// On disk: <uids_dir>/<uid> holds the id of the sandbox. It appears in one step (a renamed file that replaces
// nothing), so that any number of processes may assign at once and none shares a uid.
// <sandboxes_dir>/<sandbox_id>/uid, which Workspace::open writes, records it in the sandbox; it is read first
// and must agree with the registry, else the result is an error, never another uid. Missing entries (a backup
// without them) are restored from there before a new uid is assigned, or from the owner of the sandbox's
// files if it cannot be read. A uid that another gateway of this host has is not assigned (uid_claims.h). A
// sandbox that is created in advance, before its agent is known, has a uid of the same kind: hand_over(). A
// crash after assign() and before Workspace::open() leaves an entry that the next assign() of that sandbox
// finds again; at worst one uid stays unused. <uids_dir>/key is the key, 128 random bits as 32 hexadecimal
// digits. The first new uid makes it, in the same way; while it is damaged or cannot be read, no new uid is
// assigned. Any thread, any process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "isogate/backend.h"
#include "lib/error.h"
#include "lib/sip_hash.h"
#include "runner/uid/uid_claims.h"

namespace isogate {

// The input of the hash for a sandbox's uid.
std::string uid_seed(const isogate_host& host, const isogate_sandbox_spec& spec);

class UidRegistry {
 public:
  struct Options {
    std::string uids_dir, sandboxes_dir;
    std::string passwd = "/etc/passwd", group = "/etc/group", subuid = "/etc/subuid", subgid = "/etc/subgid";
    std::string claims = "/run/isogate-uids";  // UidClaims, of all gateways of this host
  };
  explicit UidRegistry(Options options)
      : options_(std::move(options)), claims_(options_.claims, options_.uids_dir) {}

  // The hash alone: where the search begins.
  static uint32_t preferred(const SipKey& key, std::string_view seed);

  Result<uint32_t> assign(const std::string& sandbox_id, std::string_view seed) const;
  // Assigns the uid of one sandbox to another, together with its files: the caller renames them next, or
  // hands the uid back. ISOGATE_INTERNAL when it is not `from`'s.
  Result<void> hand_over(uint32_t uid, const std::string& from, const std::string& to) const;
  // Call after the sandbox's files have been removed. ISOGATE_UNAVAILABLE while a process of that uid lives,
  // even one that /proc hides, or the sandbox's directory exists; then nothing is released. Not registered is
  // OK.
  Result<void> release(const std::string& sandbox_id, uint32_t uid) const;

 private:
  // True when the entry is this sandbox's, made now or before, and the claim is this gateway's.
  [[nodiscard]] Result<bool> take(int uids, uint32_t uid, const std::string& sandbox_id) const;

  // What a refused take() means, and what to do.
  [[nodiscard]] std::string why_taken(uint32_t uid) const;

  // Once: the entries of all existing sandboxes.
  [[nodiscard]] Result<void> restore(int uids) const;

  Options options_;
  UidClaims claims_;
  mutable std::mutex restoring_;
  mutable bool restored_ = false;
};

// How many processes, zombies left out, have this uid as real, effective, saved or file uid. What /proc hides
// counts as none (below); an error if one cannot be looked at for another reason.
Result<uint32_t> count_processes(uint32_t uid);

// Why count_processes() and end_processes() do not find all processes of other users although this one is
// root's: /proc hides them (hidepid, proc(5)). Empty: they do.
std::string why_processes_are_hidden();

// Pure, of the text of /proc/self/mountinfo: whether /proc hides processes from a process that may not trace
// them and has these groups.
bool hides_processes(std::string_view mountinfo, std::span<const gid_t> groups);

// Whether anything runs with this real uid, as far as this process can see; it costs the same however many
// do.
bool uid_runs(uint32_t uid);

// SIGKILLs every process with this uid until none is left, for at most a second. For uids of the registry
// only. ISOGATE_UNAVAILABLE when some stay (uninterruptible sleep), or one runs that /proc hides.
Result<void> end_processes(uint32_t uid);

}  // namespace isogate
