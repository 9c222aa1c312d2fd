#include "gateway/base/privileges_steps.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "gateway/base/process_status.h"

namespace isogate::privileges {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kHelperThread = true;  // ThreadSanitizer runs one of its own
#else
constexpr bool kHelperThread = false;
#endif

std::string hex_mask(uint64_t mask) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), digits[mask & 15]);
    mask >>= 4;
  } while (mask != 0);
  return "0x" + text;
}

Error still_has(const std::string& what) {
  return {ISOGATE_INTERNAL, 0, "privileges were dropped, but the process still has " + what};
}

}  // namespace

Result<void> require_single_thread() {
  auto status = read_process_status();
  if (!status) return status.error();
  if (status->threads != 1 && !kHelperThread)
    return Error{ISOGATE_INTERNAL, 0,
                 "cannot drop privileges: " + std::to_string(status->threads) +
                     " threads run already, and each has privileges of its own"};
  return {};
}

Result<void> reduce_bounding_set(uint64_t keep) {
  for (int cap = 0; cap < 64; ++cap) {
    const int present = ::prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
    if (present < 0) break;  // EINVAL: beyond the last capability of this kernel
    if (present == 0 || (keep >> cap & 1) != 0) continue;
    if (::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0)
      return os_error("cannot drop capability " + std::to_string(cap) + " from the bounding set", errno);
  }
  return {};
}

Result<void> clear_ambient_set() {
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
    return os_error("cannot clear the ambient capabilities", errno);
  return {};
}

Result<void> set_capabilities(uint64_t keep) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  for (int half = 0; half < 2; ++half)
    data[half].effective = data[half].permitted = static_cast<uint32_t>(keep >> (32 * half));
  if (::syscall(SYS_capset, &header, data) != 0)
    return os_error("cannot set the capabilities to " + hex_mask(keep), errno);
  return {};
}

Result<void> lock_securebits() {
  const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
                             SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                             SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  if (::prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) != 0 && errno != EPERM)
    return os_error("cannot lock the securebits", errno);
  return {};
}

Result<void> forbid_new_privileges() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return os_error("cannot set no_new_privs", errno);
  return {};
}

Result<void> forbid_dumps() {
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return os_error("cannot make the process undumpable", errno);
  return {};
}

Result<void> set_ids(uid_t uid, gid_t gid, const std::vector<gid_t>& groups) {
  if (::setgroups(groups.size(), groups.data()) != 0)
    return os_error("cannot set the supplementary groups", errno);
  if (::setresgid(gid, gid, gid) != 0) return os_error("cannot become gid " + std::to_string(gid), errno);
  if (::setresuid(uid, uid, uid) != 0) return os_error("cannot become uid " + std::to_string(uid), errno);
  return {};
}

Result<void> verify_powerless() {
  auto status = read_process_status();
  if (!status) return status.error();
  const uint64_t all = status->inheritable | status->permitted | status->effective | status->ambient;
  if (all != 0) return still_has("capabilities " + hex_mask(all));
  if (!status->no_new_privs) return still_has("no no_new_privs");
  if (::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0) return still_has("the right to be dumped");
  if (::setresuid(static_cast<uid_t>(-1), 0, static_cast<uid_t>(-1)) == 0) return still_has("a way to uid 0");
  return {};
}

}  // namespace isogate::privileges
