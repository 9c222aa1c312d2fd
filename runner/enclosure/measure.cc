#include "runner/enclosure/measure.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string_view>

#include "lib/text.h"
#include "runner/exec/raw_syscall.h"

namespace isogate {
namespace {

std::optional<uint64_t> inode(std::string_view link) {  // "mnt:[4026531841]"
  const size_t open = link.find('['), close = link.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos) return std::nullopt;
  return number_in<uint64_t>(link.substr(open + 1, close - open - 1));
}

constexpr std::chrono::seconds kLongest{10};

struct PortraitPage {
  PortraitPage()
      : memory(::mmap(nullptr, sizeof(SelfPortrait), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0)) {}
  ~PortraitPage() {
    if (memory != MAP_FAILED) ::munmap(memory, sizeof(SelfPortrait));
  }
  PortraitPage(const PortraitPage&) = delete;
  PortraitPage& operator=(const PortraitPage&) = delete;
  void* memory;
};

}  // namespace

Result<isogate_evidence> evidence_from(const SelfPortrait& portrait) {
  const std::string_view status(portrait.status, portrait.status_size);
  bool complete = portrait.complete == 1;
  const auto keep = [&complete](std::optional<uint64_t> value) {
    complete = complete && value.has_value();
    return value.value_or(0);
  };
  // The last on the line of that name: for Uid and Gid that is the filesystem id, the same as the others
  // after setresuid.
  const auto number = [&](std::string_view name, int base) {
    const std::string_view values = line_field(status, name).value_or("");
    return keep(number_in<uint64_t>(values.substr(values.find_last_of(" \t") + 1), base));
  };
  isogate_evidence evidence{};
  evidence.struct_size = sizeof evidence;
  evidence.flags = ISOGATE_EVIDENCE_MEASURED;
  evidence.uid = static_cast<uint32_t>(number("Uid", 10));
  evidence.gid = static_cast<uint32_t>(number("Gid", 10));
  evidence.no_new_privs = static_cast<uint32_t>(number("NoNewPrivs", 10));
  evidence.seccomp_mode = static_cast<uint32_t>(number("Seccomp", 10));
  evidence.cap_inheritable = number("CapInh", 16);
  evidence.cap_permitted = number("CapPrm", 16);
  evidence.cap_effective = number("CapEff", 16);
  evidence.cap_bounding = number("CapBnd", 16);
  evidence.cap_ambient = number("CapAmb", 16);
  uint64_t* const namespaces[7] = {&evidence.ns_mnt, &evidence.ns_pid,  &evidence.ns_net,   &evidence.ns_ipc,
                                   &evidence.ns_uts, &evidence.ns_user, &evidence.ns_cgroup};
  for (int i = 0; i < 7; ++i) *namespaces[i] = keep(inode(portrait.namespaces[i]));
  evidence.visible_processes = portrait.visible_processes;
  if (!complete) {
    return Error{ISOGATE_INTERNAL, 0,
                 "cannot measure a program's surroundings: /proc does not tell all of it"};
  }
  return evidence;
}

Result<isogate_evidence> measure_identity(SpawnPlan plan, const Identity& identity, SpawnRescuer& rescuer) {
  const PortraitPage page;
  if (page.memory == MAP_FAILED) return os_error("cannot map a page to measure by", errno);
  plan.copy_memory = true;
  plan.instead = raw_take_portrait;
  plan.instead_argument = page.memory;
  const auto limit = make_timer(kLongest);
  if (!limit) return limit.error();
  StartUnderWay start{.cancel_fd = limit->get(), .stage = &plan.report->stage};
  {
    const SpawnRescuer::Watch watch(rescuer, start);
    int pid = 0;
    uint64_t mask = 0;
    raw::block_signals(&mask);
    const long failed = raw_spawn(plan, &start.pidfd, &pid);
    raw::restore_signals(&mask);
    if (failed < 0) return os_error("cannot start a child to measure by", static_cast<int>(-failed));
    while (::waitpid(pid, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  ::close(start.pidfd);
  if (plan.report->os_errno != 0) return describe_failure(*plan.report, identity);
  return evidence_from(*static_cast<const SelfPortrait*>(page.memory));
}

}  // namespace isogate
