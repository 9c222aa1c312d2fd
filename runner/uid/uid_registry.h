// Which uid is whose: one Linux user per sandbox, the same one for as long as the sandbox exists.
//
// The uid of a sandbox is FNV-1a 32 of its agent id % 60000 + 10000, or the next free one, wrapping around
// within 10000 … 69999. Where several tenants may call, the tenant is hashed with the agent id, so that no
// uid says that another tenant has an agent of that name. What was assigned before stays. Never given out:
// the uids of this process, 61184–65535 (systemd's dynamic users, nobody, -1 in 16 bits), every user and
// group of passwd and group and of what else the host asks for its users (getpwuid(3)), every subordinate
// range of subuid and subgid, and a uid that runs something while it is nobody's yet: a container's, say. The
// gid is the uid.
//
// On disk: <uids_dir>/<uid> holds the id of the sandbox. It appears in one step (a renamed file that
// replaces nothing), so that any number of processes may assign at once and none shares a uid.
// <sandboxes_dir>/<sandbox_id>/uid, which Workspace::open writes, remembers it on the sandbox's side; it is
// looked at first and must agree with the registry, else the answer is an error, never another uid. Entries
// that are missing (a backup without them) are made from there before anything new is given out, or from the
// owner of the sandbox's files, where that cannot be read. What another gateway of this host has is not given
// out (uid_claims.h). What was made ahead, before anybody knows its agent, has a uid of the same kind:
// hand_over(). A crash after assign() and before Workspace::open() leaves an entry that the next assign() of
// that sandbox finds again; at worst one uid stays unused. Any thread, any process.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "isogate/backend.h"
#include "lib/error.h"
#include "runner/uid/uid_claims.h"

namespace isogate {

// What the uid of a sandbox is the hash of.
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
  static uint32_t preferred(std::string_view seed);

  Result<uint32_t> assign(const std::string& sandbox_id, std::string_view seed) const;
  // The uid of one sandbox is another's from now on, whose files it comes with: they are to be renamed next,
  // or the uid handed back. ISOGATE_INTERNAL when it is not `from`'s.
  Result<void> hand_over(uint32_t uid, const std::string& from, const std::string& to) const;
  // After the sandbox's files have been removed. ISOGATE_UNAVAILABLE while a process of that uid lives or the
  // sandbox's directory is there; then nothing is released. Not registered is OK.
  Result<void> release(const std::string& sandbox_id, uint32_t uid) const;

 private:
  // True when the entry is this sandbox's, made now or before, and the claim is this gateway's.
  [[nodiscard]] Result<bool> take(int uids, uint32_t uid, const std::string& sandbox_id) const;

  // Once: the entries of all sandboxes that are there.
  [[nodiscard]] Result<void> restore(int uids) const;

  Options options_;
  UidClaims claims_;
  mutable std::mutex restoring_;
  mutable bool restored_ = false;
};

// How many processes, zombies left out, have this uid as real, effective, saved or file uid.
Result<uint32_t> count_processes(uint32_t uid);

// Whether anything runs with this real uid, as far as this process can see; it costs the same however many
// do.
bool uid_runs(uint32_t uid);

// SIGKILLs every process with this uid until none is left, for at most a second. For uids of the registry
// only. ISOGATE_UNAVAILABLE when some stay (uninterruptible sleep).
Result<void> end_processes(uint32_t uid);

}  // namespace isogate
