#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/base/front_filter.h"
#include "gateway/base/privileges.h"
#include "gateway/base/privileges_steps.h"

namespace isogate {
namespace {

using namespace privileges;

constexpr uid_t kNobody = 65534;

// Beyond the front's rules. A network namespace does not keep Unix sockets of the file system away.
constexpr FilterRule kNoSockets[] = {
    {"socket", FilterAction::kRefuse, "no network, no Engine, no bus"},
    {"socketpair", FilterAction::kRefuse, "nobody to talk to"},
};

struct Limit {
  int resource;
  const char* name;
  rlim_t soft, hard;
};

constexpr Limit kLimits[] = {
    {RLIMIT_CORE, "RLIMIT_CORE", 0, 0},
    {RLIMIT_CPU, "RLIMIT_CPU", 5, 6},
    {RLIMIT_FSIZE, "RLIMIT_FSIZE", 0, 0},
    {RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK", 0, 0},
    {RLIMIT_NOFILE, "RLIMIT_NOFILE", 256, 256},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory is terabytes
    {RLIMIT_AS, "RLIMIT_AS", rlim_t{4} << 30, rlim_t{4} << 30},
#endif
};

Result<void> set_limits() {
  for (const Limit& limit : kLimits) {
    rlimit now{};
    if (::getrlimit(limit.resource, &now) != 0)
      return os_error(std::string("cannot read ") + limit.name, errno);
    const rlimit wanted{std::min(limit.soft, now.rlim_max), std::min(limit.hard, now.rlim_max)};
    if (::setrlimit(limit.resource, &wanted) != 0)
      return os_error(std::string("cannot set ") + limit.name, errno);
  }
  return {};
}

// Where neither may be made, the filter alone stands in the way. In a user namespace root could not become
// nobody.
void leave_network(bool root) {
  if (::unshare(CLONE_NEWNET) != 0 && !root) (void)::unshare(CLONE_NEWUSER | CLONE_NEWNET);
}

Result<void> verify_no_network() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  ::close(fd);
  return Error{ISOGATE_INTERNAL, 0, "the quarantine still has a network"};
}

}  // namespace

Result<void> enter_quarantine() {
  if (auto alone = require_single_thread(); !alone) return alone;
  const bool root = started_by_root();
  leave_network(root);
  // Without uid 0 and without a user namespace this may fail; no_new_privs then makes the set unreachable.
  if (auto reduced = reduce_bounding_set(0); !reduced && root) return reduced;
  if (auto cleared = clear_ambient_set(); !cleared) return cleared;
  if (auto locked = lock_securebits(); !locked) return locked;
  if (root) {
    if (auto changed = set_ids(kNobody, kNobody, {}); !changed) return changed;
  }
  if (auto limited = set_limits(); !limited) return limited;
  if (auto emptied = set_capabilities(0); !emptied) return emptied;
  if (auto forbidden = forbid_new_privileges(); !forbidden) return forbidden;
  if (auto forbidden = forbid_dumps(); !forbidden) return forbidden;
  std::vector<FilterRule> rules(front_filter_rules().begin(), front_filter_rules().end());
  std::erase_if(rules, [](const FilterRule& rule) {
    return std::string_view(rule.system_call) == "socket" ||
           std::string_view(rule.system_call) == "rt_sigaction";
  });
  rules.insert(rules.end(), std::begin(kNoSockets), std::end(kNoSockets));
  if (auto filtered = install_filter(rules); !filtered) return filtered;
  if (auto verified = verify_no_network(); !verified) return verified;
  return verify_powerless();
}

}  // namespace isogate
