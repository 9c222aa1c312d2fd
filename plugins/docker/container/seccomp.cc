#include "plugins/docker/container/seccomp.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "runner/enclosure/syscall_policy.h"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLow32 = 0xFFFFFFFF;  // the part of an int that the kernel reads: CVE-2019-10063
constexpr uint64_t kNewNamespaces = 0x7E020000;
constexpr uint64_t kSocketTypes = 0xF;

Json masked(unsigned index, uint64_t mask, uint64_t value) {
  return {{"index", index}, {"value", mask}, {"valueTwo", value}, {"op", "SCMP_CMP_MASKED_EQ"}};
}

Json equal(unsigned index, uint64_t value) { return masked(index, kLow32, value); }

using Conditions = std::vector<Json>;  // any of them; each is an array of which all must hold

Json all(Json::initializer_list_t conditions) { return Json::array(conditions); }

// A rule compares an argument once, so "none of these" is written as blocks of numbers with the same prefix.
void all_but(unsigned index, std::vector<uint64_t> refused, uint64_t prefix, unsigned bits, Conditions& any) {
  const uint64_t mask = kLow32 & ~((uint64_t{1} << bits) - 1);
  std::erase_if(refused, [&](uint64_t each) { return (each & mask) != prefix; });
  if (refused.empty()) return any.push_back(all({masked(index, mask, prefix)}));
  if (bits == 0) return;
  all_but(index, refused, prefix, bits - 1, any);
  all_but(index, refused, prefix | uint64_t{1} << (bits - 1), bits - 1, any);
}

Conditions all_but(unsigned index, const std::vector<uint64_t>& refused) {
  Conditions any;
  all_but(index, refused, 0, 32, any);
  return any;
}

Conditions sockets() {
  Conditions any{all({equal(0, AF_UNIX)})};
  for (const uint64_t family : {AF_INET, AF_INET6})
    for (const uint64_t type : {SOCK_STREAM, SOCK_DGRAM})
      for (const uint64_t protocol : {0, +IPPROTO_TCP, +IPPROTO_UDP, +IPPROTO_ICMP, +IPPROTO_ICMPV6})
        any.push_back(all({equal(0, family), masked(1, kSocketTypes, type), equal(2, protocol)}));
  return any;
}

Conditions socket_options() {
  std::vector<uint64_t> refused(std::begin(kRefusedSocketOptions), std::end(kRefusedSocketOptions));
  refused.insert(refused.end(), {SO_RCVBUF, SO_RCVBUFFORCE});  // these are pretended
  Conditions any = all_but(1, {SOL_SOCKET});
  for (const Json& option : all_but(2, refused)) any.push_back(all({equal(1, SOL_SOCKET), option.at(0)}));
  return any;
}

Conditions no_devices(unsigned index) {
  Conditions any;
  for (const unsigned type : {0, S_IFREG, S_IFIFO, S_IFSOCK})
    any.push_back(all({masked(index, S_IFMT, type)}));
  return any;
}

Json error_rule(const Json& names, int error) {
  return {{"names", names}, {"action", "SCMP_ACT_ERRNO"}, {"errnoRet", error}};
}

void add_rules(Json& rules, const SyscallRow& row) {
  Json names = Json::array();
  for (const Syscall& each : row.calls) names.push_back(each.name);
  const auto allow = [&](const Conditions& any) {
    for (const Json& each : any)
      rules.push_back({{"names", names}, {"action", "SCMP_ACT_ALLOW"}, {"args", each}});
  };
  switch (row.verdict) {
    case SyscallVerdict::kRefuse:
    case SyscallVerdict::kDebugOnly:
      return;  // like a call that no rule names
    case SyscallVerdict::kAbsent:
    case SyscallVerdict::kByPointer:
      return rules.push_back(error_rule(names, ENOSYS));
    case SyscallVerdict::kPretend:
      return rules.push_back(error_rule(names, 0));
    case SyscallVerdict::kAllow:
    // For these the runner's own filter checks the target process.
    case SyscallVerdict::kOnProcess:
    case SyscallVerdict::kScheduler:
    case SyscallVerdict::kPriority:
    case SyscallVerdict::kIoPriority:
    case SyscallVerdict::kSignalTo:
      return rules.push_back({{"names", names}, {"action", "SCMP_ACT_ALLOW"}});
    case SyscallVerdict::kClone:
      return allow({all({masked(0, kNewNamespaces, 0)})});
    case SyscallVerdict::kSocket:
      return allow(sockets());
    case SyscallVerdict::kSocketPair:
      return allow({all({equal(0, AF_UNIX)})});
    case SyscallVerdict::kSocketOption:
      for (const uint64_t size : {SO_RCVBUF, SO_RCVBUFFORCE}) {
        rules.push_back(error_rule(names, 0));
        rules.back()["args"] = all({equal(1, SOL_SOCKET), equal(2, size)});
      }
      return allow(socket_options());
    case SyscallVerdict::kFcntl:
      return allow(all_but(1, {F_SETPIPE_SZ}));
    case SyscallVerdict::kIoctl:
      return allow(all_but(1, {std::begin(kRefusedIoctls), std::end(kRefusedIoctls)}));
    case SyscallVerdict::kPersonality:
      return allow({all({equal(0, 0)}), all({equal(0, kLow32)})});
    case SyscallVerdict::kSeccomp:
      return allow({all({masked(1, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0)})});
    case SyscallVerdict::kMap:
      return allow({all({masked(3, MAP_HUGETLB, 0)})});
    case SyscallVerdict::kMemoryFile:
      return allow({all({masked(1, MFD_HUGETLB, 0)})});
    case SyscallVerdict::kSharedMemory:
      return allow({all({masked(2, SHM_HUGETLB, 0)})});
    case SyscallVerdict::kMakeNode2:
      return allow(no_devices(1));
    case SyscallVerdict::kMakeNode3:
      return allow(no_devices(2));
  }
}

}  // namespace

Json make_seccomp_profile() {
  Json rules = Json::array();
  for (const SyscallRow& row : syscall_policy()) add_rules(rules, row);
  return {{"defaultAction", "SCMP_ACT_ERRNO"},
          {"defaultErrnoRet", EPERM},
          {"archMap",
           {{{"architecture", "SCMP_ARCH_X86_64"}, {"subArchitectures", Json::array()}},
            {{"architecture", "SCMP_ARCH_AARCH64"}, {"subArchitectures", Json::array()}}}},
          {"syscalls", std::move(rules)}};
}

const std::string& seccomp_profile() {
  static const std::string profile = make_seccomp_profile().dump();
  return profile;
}

}  // namespace isogate::docker
