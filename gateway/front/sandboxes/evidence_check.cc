#include "gateway/front/sandboxes/evidence_check.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "lib/fd.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

// Inode numbers of the initial namespaces, the same on every Linux kernel (include/linux/proc_ns.h).
constexpr uint64_t kInitialPid = 0xEFFFFFFC, kInitialIpc = 0xEFFFFFFF, kInitialUts = 0xEFFFFFFE;

constexpr size_t kBootIdSize = 36;

struct NamespaceKind {
  const char* name;
  uint64_t Namespaces::*host;
  uint64_t isogate_evidence::*inside;
  uint64_t initial;
};
constexpr NamespaceKind kNamespaceKinds[] = {
    {"mnt", &Namespaces::mnt, &isogate_evidence::ns_mnt, 0},
    {"pid", &Namespaces::pid, &isogate_evidence::ns_pid, kInitialPid},
    {"net", &Namespaces::net, &isogate_evidence::ns_net, 0},
    {"ipc", &Namespaces::ipc, &isogate_evidence::ns_ipc, kInitialIpc},
    {"uts", &Namespaces::uts, &isogate_evidence::ns_uts, kInitialUts}};

struct Findings {
  std::string text;
  void add(const std::string& finding) { text += (text.empty() ? "" : "; ") + finding; }
};

bool another_kernel(uint32_t locality) {
  return locality == ISOGATE_LOCALITY_CLUSTER || locality == ISOGATE_LOCALITY_GATEWAY;
}

bool is_boot_id(std::string_view text) {  // as drivers/char/random.c of Linux prints it
  return text.size() == kBootIdSize && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-';
         });
}

std::string_view boot_id_of(const isogate_evidence& found) {
  return {found.boot_id, ::strnlen(found.boot_id, sizeof found.boot_id)};
}

// Why the evidence does not come from another kernel than this machine's; nullptr: it does.
const char* same_kernel(const isogate_evidence& found, const Namespaces& host) {
  const std::string_view inside = boot_id_of(found);
  if (inside.empty()) return "the boot_id of its kernel was not measured";
  if (!is_boot_id(inside)) return "the boot_id of its kernel is malformed";
  if (!is_boot_id(host.boot_id)) return "the boot_id of this machine is not known";
  return inside == host.boot_id ? "it runs on this machine's kernel" : nullptr;
}

void check_namespaces(const isogate_evidence& found, const Claim& claim, const Namespaces& host,
                      Findings& out) {
  bool comparable = !another_kernel(claim.locality);
  for (const NamespaceKind& kind : kNamespaceKinds) {
    std::string name = std::string("its ") + kind.name + " namespace ";
    const uint64_t inside = found.*kind.inside, outside = host.*kind.host;
    if (inside == 0 || (comparable && outside == 0))
      out.add(name + "could not be compared");
    else if ((comparable && inside == outside) || inside == kind.initial)
      out.add(name + "is the host's");
  }
}

void check_privileges(const isogate_evidence& found, Findings& out) {
  const std::pair<const char*, uint64_t> sets[] = {{"inheritable", found.cap_inheritable},
                                                   {"permitted", found.cap_permitted},
                                                   {"effective", found.cap_effective},
                                                   {"bounding", found.cap_bounding},
                                                   {"ambient", found.cap_ambient}};
  for (const auto& [name, bits] : sets)
    if (bits != 0) out.add(std::string("its ") + name + " capabilities are not empty");
  if (found.no_new_privs != 1) out.add("no_new_privs is not set");
  if (found.seccomp_mode != 2) out.add("it runs under no seccomp filter");
}

void check_network(const isogate_evidence& found, uint32_t egress, Findings& out) {
  if (egress != ISOGATE_EGRESS_DENY && egress != ISOGATE_EGRESS_PROXY) return;
  if (!(found.flags & ISOGATE_EVIDENCE_NETWORK))
    return out.add("what it reaches over the network was not tried");
  if (egress == ISOGATE_EGRESS_DENY && (found.flags & ISOGATE_EVIDENCE_REACHED_GATEWAY))
    out.add("it reaches this gateway, though egress is denied");
  if (found.flags & ISOGATE_EVIDENCE_REACHED_METADATA) out.add("it reaches the metadata address");
}

void check_uid(const isogate_evidence& found, const Claim& claim, bool measured, Findings& out) {
  if (!claim.started_by_root || !(claim.capabilities & ISOGATE_CAP_UID_PER_SANDBOX)) return;
  if (claim.uid == UINT32_MAX) out.add("its backend claims a uid per sandbox and names none");
  if (claim.uid == 0 || (measured && found.uid == 0)) out.add("its programs run as uid 0");
  if (measured && claim.uid != UINT32_MAX && found.uid != claim.uid)
    out.add("its programs run as uid " + std::to_string(found.uid) + ", its backend says " +
            std::to_string(claim.uid));
}

void check_limits(const Limits& in_force, const Limits& asked, Findings& out) {
  for (const LimitKind& kind : kLimitKinds) {
    const uint64_t most = asked.get(kind.id), found = in_force.get(kind.id);
    if (most == 0) continue;
    const std::string limit = std::string("the limit ") + kind.name + " of " + std::to_string(most);
    if (found == 0)
      out.add(limit + " is not in force");
    else if (found > most)
      out.add(limit + " is in force as " + std::to_string(found));
  }
}

}  // namespace

Result<Namespaces> own_namespaces() {
  Namespaces own;
  for (const NamespaceKind& kind : kNamespaceKinds) {
    const std::string path = std::string("/proc/self/ns/") + kind.name;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return os_error("cannot look at " + path, errno);
    own.*kind.host = status.st_ino;
  }
  // Without it nothing but a virtual machine is refused.
  if (const Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)); file)
    if (const auto text = read_to_end(file.get(), 4096, "cannot read the boot_id"))
      own.boot_id = trimmed(*text, "\n");
  return own;
}

std::optional<std::string> evidence_mismatch(const isogate_evidence& evidence, const Claim& claim,
                                             const Namespaces& host) {
  Findings out;
  bool measured = evidence.flags & ISOGATE_EVIDENCE_MEASURED;
  switch (claim.isolation) {
    case ISOGATE_ISOLATION_NONE:
      if (!measured && (claim.capabilities & ISOGATE_CAP_EVIDENCE))
        out.add("its backend offers evidence, but nothing was measured");
      break;
    case ISOGATE_ISOLATION_NAMESPACE:
    case ISOGATE_ISOLATION_CONTAINER:
    case ISOGATE_ISOLATION_VM:
      if (!measured) {
        out.add("its isolation was not measured");
        break;
      }
      if (claim.isolation != ISOGATE_ISOLATION_VM || another_kernel(claim.locality))
        check_namespaces(evidence, claim, host, out);
      else if (const char* why = same_kernel(evidence, host))
        out.add(why);
      check_privileges(evidence, out);
      break;
    default:
      out.add("its isolation level is not known, " + std::to_string(claim.isolation));
  }
  bool isolated = claim.isolation != ISOGATE_ISOLATION_NONE;
  check_network(evidence, claim.egress, out);
  check_uid(evidence, claim, measured, out);
  if ((measured || isolated) && !claim.limits_best_effort)
    check_limits(Limits::of(evidence), claim.limits, out);
  if (out.text.empty()) return std::nullopt;
  return out.text;
}

std::optional<std::string> ports_obstacle(const isogate_evidence& evidence, const Claim& claim,
                                          const Namespaces& host) {
  if ((evidence.flags & ISOGATE_EVIDENCE_MEASURED) == 0 || evidence.ns_net == 0)
    return "its network was not measured";
  if ((evidence.flags & ISOGATE_EVIDENCE_REACHED_GATEWAY) != 0)
    return "it reaches a listener of this gateway, whose network may be its own";
  const bool is_vm = claim.isolation == ISOGATE_ISOLATION_VM;
  if (another_kernel(claim.locality) || (is_vm && same_kernel(evidence, host) == nullptr)) {
    if ((evidence.flags & ISOGATE_EVIDENCE_NETWORK) == 0)
      return "whether it shares this gateway's network was not tried";
    return std::nullopt;
  }
  if (host.net == 0) return "its network could not be compared with this gateway's";
  if (evidence.ns_net == host.net) return "it has no network of its own: it shares this gateway's";
  return std::nullopt;
}

}  // namespace isogate::front
