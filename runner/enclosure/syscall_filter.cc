#include "runner/enclosure/syscall_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>

#include "runner/enclosure/syscall_policy.h"

namespace isogate {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64, kFirstForeign = 0x40000000;  // x32
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64, kFirstForeign = 0;
#endif

using Code = std::vector<sock_filter>;

constexpr uint32_t kNewNamespaces = 0x7E020000;  // CLONE_NEW* but TIME, which clone(2) cannot be asked for
constexpr uint32_t kIoPriorityOfUser = 3;
constexpr uint32_t kSocketTypes = 0xF;  // of argument 1; the rest are flags

constexpr uint32_t error(uint32_t number) { return SECCOMP_RET_ERRNO | number; }
sock_filter load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter low(int argument) {
  return load(offsetof(seccomp_data, args) + sizeof(uint64_t) * static_cast<size_t>(argument));
}
sock_filter answer(uint32_t verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }
sock_filter mask(uint32_t bits) { return BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits); }
// Jumps by that many instructions, whether it matches or not.
sock_filter equal(uint32_t value, uint8_t yes, uint8_t no) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no);
}
sock_filter any_bit(uint32_t bits, uint8_t yes, uint8_t no) {
  return BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, yes, no);
}

// The pid of the reaper. In its own pid namespace a program has only one, pid 1; beside any other, all calls
// that do not act on processes are allowed.
enum class Reaper { kFirst, kAnyOther };

// Whether the loaded pid may be the reaper's.
sock_filter is_reaper(Reaper where, uint8_t yes, uint8_t no) {
  return where == Reaper::kFirst ? equal(1, yes, no) : equal(0, no, yes);
}

Code on_process(Reaper where) {
  return {low(0), is_reaper(where, 0, 1), answer(error(EPERM)), answer(SECCOMP_RET_ALLOW)};
}

// `all`: the value of argument 0 that means all processes of a user.
Code priority(Reaper where, uint32_t all) {
  return {low(0),
          equal(all, 2, 0),
          low(1),
          is_reaper(where, 0, 1),
          answer(error(EPERM)),
          answer(SECCOMP_RET_ALLOW)};
}

// Refuses when the loaded value is one of those.
void allow_all_but(std::span<const uint32_t> refused, Code& code) {
  for (size_t left = refused.size(); const uint32_t each : refused)
    code.push_back(equal(each, static_cast<uint8_t>(left--), 0));
  code.push_back(answer(SECCOMP_RET_ALLOW));
  code.push_back(answer(error(EPERM)));
}

Code ioctls() {
  Code code = {low(1)};
  allow_all_but(kRefusedIoctls, code);
  return code;
}

Code socket_options() {
  Code code = {low(1),          equal(SOL_SOCKET, 1, 0), answer(SECCOMP_RET_ALLOW),
               low(2),          equal(SO_RCVBUF, 1, 0),  equal(SO_RCVBUFFORCE, 0, 1),
               answer(error(0))};
  allow_all_but(kRefusedSocketOptions, code);
  return code;
}

Code scheduler(Reaper where) {
  return {low(0),
          is_reaper(where, 3, 0),
          low(1),
          mask(~static_cast<uint32_t>(SCHED_RESET_ON_FORK)),
          equal(SCHED_IDLE, 0, 1),
          answer(error(EPERM)),
          answer(SECCOMP_RET_ALLOW)};
}

Code no_device(int argument) {
  return {low(argument),        mask(S_IFMT),         equal(S_IFCHR, 1, 0),
          equal(S_IFBLK, 0, 1), answer(error(EPERM)), answer(SECCOMP_RET_ALLOW)};
}

Code code_for(SyscallVerdict verdict, Reaper where) {
  switch (verdict) {
    case SyscallVerdict::kAllow:
      return {answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kAbsent:
    case SyscallVerdict::kByPointer:
      return {answer(error(ENOSYS))};
    case SyscallVerdict::kPretend:
      return {answer(error(0))};
    case SyscallVerdict::kClone:
      return {low(0), any_bit(kNewNamespaces, 0, 1), answer(error(EPERM)), answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kSocket:
      return {low(0),
              equal(AF_UNIX, 13, 0),
              equal(AF_INET, 1, 0),
              equal(AF_INET6, 0, 10),
              low(1),
              mask(kSocketTypes),
              equal(SOCK_STREAM, 1, 0),
              equal(SOCK_DGRAM, 0, 6),
              low(2),
              equal(0 /* the type's own */, 5, 0),
              equal(IPPROTO_TCP, 4, 0),
              equal(IPPROTO_UDP, 3, 0),
              equal(IPPROTO_ICMP, 2, 0),
              equal(IPPROTO_ICMPV6, 1, 0),
              answer(error(EAFNOSUPPORT)),
              answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kSocketPair:
      return {low(0), equal(AF_UNIX, 1, 0), answer(error(EAFNOSUPPORT)), answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kSocketOption:
      return socket_options();
    case SyscallVerdict::kFcntl:
      return {low(1), equal(F_SETPIPE_SZ, 0, 1), answer(error(EPERM)), answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kIoctl:
      return ioctls();
    case SyscallVerdict::kPersonality:
      return {low(0), equal(0, 2, 0), equal(0xFFFFFFFF, 1, 0), answer(error(EPERM)),
              answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kSeccomp:
      return {low(1), any_bit(SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 1), answer(error(EPERM)),
              answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kMap:
      return {low(3), any_bit(MAP_HUGETLB, 0, 1), answer(error(EPERM)), answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kMemoryFile:
      return {low(1), any_bit(MFD_HUGETLB, 0, 1), answer(error(EPERM)), answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kSharedMemory:
      return {low(2), any_bit(SHM_HUGETLB, 0, 1), answer(error(EPERM)), answer(SECCOMP_RET_ALLOW)};
    case SyscallVerdict::kMakeNode2:
      return no_device(1);
    case SyscallVerdict::kMakeNode3:
      return no_device(2);
    case SyscallVerdict::kOnProcess:
      return on_process(where);
    case SyscallVerdict::kScheduler:
      return scheduler(where);
    case SyscallVerdict::kPriority:
      return priority(where, PRIO_USER);
    case SyscallVerdict::kIoPriority:
      return priority(where, kIoPriorityOfUser);
    case SyscallVerdict::kSignalTo:
      if (where == Reaper::kFirst) return {answer(SECCOMP_RET_ALLOW)};
      return on_process(Reaper::kFirst);
    case SyscallVerdict::kRefuse:
    case SyscallVerdict::kDebugOnly:
      break;
  }
  return {answer(error(EPERM))};
}

struct Range {  // of numbers, up to the next range's first
  uint32_t first;
  SyscallVerdict verdict;
};

void append(Code& code, const Code& more) { code.insert(code.end(), more.begin(), more.end()); }

// Left of `middle` or not; the longer jump that a tree this size may need is a JA.
Code tree(const std::vector<Range>& ranges, size_t begin, size_t end, Reaper where) {
  if (end - begin == 1) return code_for(ranges[begin].verdict, where);
  const size_t middle = begin + (end - begin) / 2;
  const Code left = tree(ranges, begin, middle, where), right = tree(ranges, middle, end, where);
  Code code;
  if (left.size() <= 255) {
    code.push_back(
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, ranges[middle].first, static_cast<uint8_t>(left.size()), 0));
  } else {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, ranges[middle].first, 0, 1));
    code.push_back(BPF_STMT(BPF_JMP | BPF_JA, static_cast<uint32_t>(left.size())));
  }
  append(code, left);
  append(code, right);
  return code;
}

using Numbers = std::vector<std::pair<uint32_t, SyscallVerdict>>;

Result<Numbers> numbers_of(Reaper where, bool tracing) {
  Numbers numbers;
  for (const SyscallRow& row : syscall_policy()) {
    SyscallVerdict verdict = row.verdict;
    if (where == Reaper::kAnyOther && verdict < SyscallVerdict::kOnProcess) continue;
    if (verdict == SyscallVerdict::kDebugOnly)
      verdict = tracing ? SyscallVerdict::kAllow : SyscallVerdict::kRefuse;
    for (const Syscall& each : row.calls) numbers.emplace_back(static_cast<uint32_t>(each.number), verdict);
  }
  std::sort(numbers.begin(), numbers.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i].first == numbers[i - 1].first)
      return Error{ISOGATE_INTERNAL, 0,
                   "system call " + std::to_string(numbers[i].first) + " is twice in the filter's table"};
  }
  return numbers;
}

Result<Code> filter_of(Reaper where, bool tracing) {
  auto numbers = numbers_of(where, tracing);
  if (!numbers) return numbers.error();
  const bool own = where == Reaper::kFirst;
  const auto between = own ? SyscallVerdict::kRefuse : SyscallVerdict::kAllow;  // what no row names
  const auto beyond = own ? SyscallVerdict::kAbsent : SyscallVerdict::kAllow;   // above all rows
  std::vector<Range> ranges;
  uint32_t next = 0;
  const auto add = [&](uint32_t first, SyscallVerdict verdict) {
    if (ranges.empty() || ranges.back().verdict != verdict) ranges.push_back({first, verdict});
  };
  for (const auto& [number, verdict] : *numbers) {
    if (number > next) add(next, between);
    add(number, verdict);
    next = number + 1;
  }
  add(next, beyond);
  Code code = {load(offsetof(seccomp_data, arch)), equal(kArchitecture, 1, 0),
               answer(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr))};
  if (kFirstForeign != 0) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kFirstForeign, 0, 1));
    code.push_back(answer(SECCOMP_RET_KILL_PROCESS));
  }
  append(code, tree(ranges, 0, ranges.size(), where));
  if (code.size() > BPF_MAXINSNS) return Error{ISOGATE_INTERNAL, 0, "the system call filter is too long"};
  return code;
}

}  // namespace

Result<std::vector<sock_filter>> make_sandbox_filter(bool tracing) {
  return filter_of(Reaper::kFirst, tracing);
}

Result<std::vector<sock_filter>> make_guard_filter() { return filter_of(Reaper::kAnyOther, false); }

}  // namespace isogate
