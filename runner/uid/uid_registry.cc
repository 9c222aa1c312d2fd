#include "runner/uid/uid_registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "isogate/backend.hpp"
#include "lib/fd.h"
#include "lib/text.h"
#include "runner/cgroup/cgroup_detect.h"
#include "runner/exec/kept_capabilities.h"
#include "runner/files/workspace_room.h"
#include "runner/files/workspace_stage.h"
#include "runner/files/workspace_state.h"
#include "runner/files/workspace_tree.h"
#include "runner/uid/uid_leftovers.h"

namespace isogate {
namespace {

constexpr uint32_t kFirst = 10000;
constexpr uint32_t kCount = 60000;
constexpr const char* kKeyFile = "key";

using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;  // first, last

// Field 2 of passwd and group is an id; fields 1 and 2 of subuid and subgid are a first id and a count. The
// file is the operator's. A missing file reserves nothing, nor does an invalid line.
void add_ids(const std::string& path, bool ranges, Ranges& reserved) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto fields = split(line, ':');
    if (fields.size() < 3) continue;
    const auto first = number_in<uint32_t>(fields[ranges ? 1 : 2]);
    const auto count = ranges ? number_in<uint32_t>(fields[2]) : std::optional<uint32_t>(1);
    if (first && count && *count > 0) reserved.emplace_back(*first, uint64_t{*first} + *count - 1);
  }
}

Ranges reserved_ids(const UidRegistry::Options& options) {
  Ranges reserved{{61184, 65535}};
  uid_t uids[3] = {};
  gid_t gids[3] = {};
  ::getresuid(&uids[0], &uids[1], &uids[2]);
  ::getresgid(&gids[0], &gids[1], &gids[2]);
  for (const uid_t uid : uids) reserved.emplace_back(uid, uid);
  for (const gid_t gid : gids) reserved.emplace_back(gid, gid);
  add_ids(options.passwd, false, reserved);
  add_ids(options.group, false, reserved);
  add_ids(options.subuid, true, reserved);
  add_ids(options.subgid, true, reserved);
  return reserved;
}

// Why processes may have this uid though none is found; empty: none has.
std::string why_unseen(uint32_t uid) { return uid_runs(uid) ? why_processes_are_hidden() : ""; }

// A directory service that cannot be reached has no users.
bool has_account(uint32_t id) {
  std::array<char, 16384> text{};
  passwd user{};
  group one{};
  passwd* found_user = nullptr;
  group* found_group = nullptr;
  const int user_error = ::getpwuid_r(id, &user, text.data(), text.size(), &found_user);
  const int group_error = ::getgrgid_r(id, &one, text.data(), text.size(), &found_group);
  return found_user != nullptr || found_group != nullptr || user_error == ERANGE || group_error == ERANGE;
}

bool contains(const Ranges& ranges, uint32_t id) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [id](const auto& range) { return id >= range.first && id <= range.second; });
}

// The uid in the sandbox's own file.
Result<std::optional<uint32_t>> remembered(const std::string& sandboxes_dir, const std::string& sandbox_id) {
  auto sandboxes = open_state_directory(sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  const auto sandbox = open_sandbox_directory(sandboxes->get(), sandbox_id);
  if (!sandbox && sandbox.error().os_errno == ENOENT) return std::optional<uint32_t>();
  if (!sandbox) return sandbox.error();
  auto text = read_state_file(sandbox->get(), kUidFile);
  if (!text) return text.error();
  if (!text->has_value()) return std::optional<uint32_t>();
  const auto uid = number_in<uint32_t>(**text);
  if (!uid || *uid < kFirst || *uid >= kFirst + kCount)
    return Error{
        ISOGATE_INTERNAL, 0,
        "the uid recorded for the sandbox is damaged: write the number of the group of its directory "
        "into the file `uid` there"};
  return uid;
}

// The uid of the sandbox's files, for when there is no record of it that can be read: its directory's group,
// wherever its workspace is.
Result<std::optional<uint32_t>> owner_of_files(int sandboxes, const std::string& sandbox_id) {
  struct stat info {};
  if (::fstatat(sandboxes, sandbox_id.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<uint32_t>();
    return os_error("cannot look at the files of " + sandbox_id, errno);
  }
  if (info.st_gid < kFirst || info.st_gid >= kFirst + kCount) return std::optional<uint32_t>();
  return std::optional<uint32_t>(info.st_gid);
}

Result<void> make_key(int uids) {
  const auto first = random_name(), second = random_name();
  if (!first) return first.error();
  if (!second) return second.error();
  const auto made = create_state_file(uids, kKeyFile, *first + *second);
  if (!made) return made.error();
  return {};  // this one, or that of another process
}

std::optional<SipKey> key_in(std::string_view digits) {
  if (digits.size() != 32) return std::nullopt;
  const auto k0 = number_in<uint64_t>(digits.substr(0, 16), 16),
             k1 = number_in<uint64_t>(digits.substr(16), 16);
  return k0 && k1 ? std::optional(SipKey{*k0, *k1}) : std::nullopt;
}

Result<SipKey> key_of(int uids) {
  auto text = read_state_file(uids, kKeyFile);
  if (text && !text->has_value()) {
    if (auto made = make_key(uids); !made) return made.error();
    text = read_state_file(uids, kKeyFile);
  }
  if (!text) return text.error();
  if (const auto key = key_in(text->value_or(""))) return *key;
  return Error{
      ISOGATE_INTERNAL, 0,
      "`uids/key` in the state directory is damaged: remove it, and a new one is made; assigned uids stay"};
}

}  // namespace

std::string uid_seed(const isogate_host& host, const isogate_sandbox_spec& spec) {
  const std::string_view agent = sdk::view(spec.agent_id), tenant = sdk::view(spec.tenant);
  if ((host.flags & ISOGATE_HOST_MANY_TENANTS) == 0) return std::string(agent);
  return std::to_string(tenant.size()).append(1, ':').append(tenant).append(agent);
}

uint32_t UidRegistry::preferred(const SipKey& key, std::string_view seed) {
  return static_cast<uint32_t>(sip_hash(key, seed) % kCount) + kFirst;
}

Result<bool> UidRegistry::take(int uids, uint32_t uid, const std::string& sandbox_id) const {
  const std::string name = std::to_string(uid);
  bool made = false;
  for (int tries = 0; tries < 3 && !made; ++tries) {
    auto owner = read_state_file(uids, name);
    if (!owner) return owner.error();
    if (owner->has_value() && **owner != sandbox_id) return false;
    if (owner->has_value()) return claims_.claim(uid);
    auto entered = create_state_file(uids, name, sandbox_id);
    if (!entered) return entered;
    made = *entered;
  }
  if (!made) return false;
  auto claimed = claims_.claim(uid);
  if ((!claimed || !*claimed) && ::unlinkat(uids, name.c_str(), 0) != 0)
    return os_error("cannot give back uid " + name, errno);
  return claimed;
}

// Missing entries, as after a backup without them, would be assigned to others.
Result<void> UidRegistry::restore(int uids) const {
  const std::lock_guard lock(restoring_);
  if (restored_) return {};
  auto sandboxes = open_state_directory(options_.sandboxes_dir);
  if (!sandboxes && sandboxes.error().os_errno == ENOENT) return {};
  if (!sandboxes) return sandboxes.error();
  std::error_code failed;
  for (auto each = std::filesystem::directory_iterator(options_.sandboxes_dir, failed);
       !failed && each != std::filesystem::directory_iterator(); each.increment(failed)) {
    const std::string id = each->path().filename();
    if (id.starts_with('.')) continue;
    auto uid = remembered(options_.sandboxes_dir, id);
    if (!uid || !*uid) uid = owner_of_files(sandboxes->get(), id);  // damage is reported at its own open
    if (!uid) return uid.error();
    if (!*uid) continue;
    if (auto entered = create_state_file(uids, std::to_string(**uid), id); !entered) return entered.error();
  }
  if (failed) return os_error("cannot list the sandboxes", failed.value());
  restored_ = true;
  return {};
}

// A claim whose entry is gone is void: a directory that no gateway uses need only be moved.
std::string UidRegistry::why_taken(uint32_t uid) const {
  const std::string entry = claims_.other_holder(uid);
  if (entry.empty()) return "is registered to another sandbox of this gateway: purge that one";
  const std::string uids_dir = entry.substr(0, entry.rfind('/'));
  return "is registered in `" + uids_dir +
         "`, by another state directory of this host. If no gateway uses `" +
         uids_dir.substr(0, uids_dir.rfind('/')) +
         "`, as after a restore by copy, move that directory away. Otherwise purge the sandbox that has it "
         "there: until then this one can be neither opened nor purged";
}

Result<uint32_t> UidRegistry::assign(const std::string& sandbox_id, std::string_view seed) const {
  auto uids = open_state_directory(options_.uids_dir);
  if (!uids) return uids.error();
  if (const auto sandboxes = open_state_directory(options_.sandboxes_dir)) make_room(sandboxes->get());
  auto before = remembered(options_.sandboxes_dir, sandbox_id);
  if (!before) return before.error();
  if (before->has_value()) {
    auto ours = take(uids->get(), **before, sandbox_id);
    if (!ours) return ours.error();
    if (*ours) return **before;
    return Error{
        ISOGATE_INTERNAL, 0,
        "the uid recorded for the sandbox, " + std::to_string(**before) + ", " + why_taken(**before)};
  }
  if (auto restored = restore(uids->get()); !restored) return restored.error();
  const auto key = key_of(uids->get());
  if (!key) return key.error();
  const Ranges reserved = reserved_ids(options_);
  const uint32_t start = preferred(*key, seed) - kFirst;
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint32_t uid = kFirst + (start + i) % kCount;
    if (contains(reserved, uid)) continue;
    const auto owner = read_state_file(uids->get(), std::to_string(uid));
    if (!owner) return owner.error();
    if (!owner->has_value() && (uid_runs(uid) || has_account(uid))) continue;
    const auto keys = owner->has_value() ? false : has_keys(uid);
    if (!keys && keys.error().status != ISOGATE_UNAVAILABLE) return keys.error();
    if (keys && *keys) continue;
    auto ours = take(uids->get(), uid, sandbox_id);
    if (!ours) return ours.error();
    if (*ours) return uid;
    // The entry that a failed open has left, and that another gateway has claimed since.
    if (owner->has_value() && **owner == sandbox_id) (void)release(sandbox_id, uid).ok();
  }
  return Error{ISOGATE_RESOURCE_EXHAUSTED, 0, "every uid from 10000 to 69999 is taken: purge sandboxes"};
}

Result<void> UidRegistry::hand_over(uint32_t uid, const std::string& from, const std::string& to) const {
  auto uids = open_state_directory(options_.uids_dir);
  if (!uids) return uids.error();
  auto owner = read_state_file(uids->get(), std::to_string(uid));
  if (!owner) return owner.error();
  if (!owner->has_value() || **owner != from)
    return Error{ISOGATE_INTERNAL, 0, "uid " + std::to_string(uid) + " is not registered to " + from};
  return replace_state_file(uids->get(), std::to_string(uid), to);
}

Result<void> UidRegistry::release(const std::string& sandbox_id, uint32_t uid) const {
  auto uids = open_state_directory(options_.uids_dir);
  if (!uids) return uids.error();
  auto owner = read_state_file(uids->get(), std::to_string(uid));
  if (!owner) return owner.error();
  if (!owner->has_value() || **owner != sandbox_id) return {};
  auto sandboxes = open_state_directory(options_.sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  const auto files = open_sandbox_directory(sandboxes->get(), sandbox_id);
  if (files || files.error().os_errno != ENOENT)
    return Error{ISOGATE_UNAVAILABLE, 0,
                 "cannot release uid " + std::to_string(uid) + ": its files are there"};
  const auto running = count_processes(uid);
  if (!running) return running.error();
  const std::string unseen = why_unseen(uid);
  if (*running > 0 || !unseen.empty())
    return Error{ISOGATE_UNAVAILABLE, 0,
                 "cannot release uid " + std::to_string(uid) + ": " +
                     (unseen.empty() ? "processes still have it" : unseen)};
  claims_.withdraw(uid);
  if (::unlinkat(uids->get(), std::to_string(uid).c_str(), 0) != 0 && errno != ENOENT)
    return os_error("cannot release uid " + std::to_string(uid), errno);
  return {};
}

namespace {

constexpr int kRounds = 100;
constexpr long kRoundNs = 10'000'000;

constexpr Kept kTrace[] = {{19, "SYS_PTRACE", "see processes that /proc hides"}};

// Alive and with this uid, by /proc/<pid>/status. The state is that of the first thread, which others
// outlive.
Result<bool> has_uid(const std::string& pid, uint32_t uid) {
  const Fd status(::open(("/proc/" + pid + "/status").c_str(), O_RDONLY | O_CLOEXEC));
  const int failed = status ? 0 : errno;
  if (failed == ENOENT || failed == ESRCH) return false;
  if (failed != 0) return os_error("cannot look at process " + pid, failed);
  const auto text = read_to_end(status.get(), size_t{64} << 20, "cannot look at process " + pid);
  if (!text && text.error().os_errno == ESRCH) return false;
  if (!text) return text.error();
  const std::string_view state = line_field(*text, "State").value_or("");
  const auto threads = number_in<int>(line_field(*text, "Threads").value_or(""));
  if (state.empty() || ((state[0] == 'Z' || state[0] == 'X') && threads.value_or(0) <= 1)) return false;
  const std::string uids = std::string("\t").append(line_field(*text, "Uid").value_or("")) + "\t";
  return uids.find("\t" + std::to_string(uid) + "\t") != std::string::npos;
}

Result<std::vector<std::string>> pids_of(uint32_t uid) {
  std::vector<std::string> found;
  std::optional<Error> unseen;
  const bool hides = !why_processes_are_hidden().empty();
  const Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc) return os_error("cannot list the processes", errno);
  const int code = each_name(proc.get(), [&](const auto& name) {
    if (name.text[0] < '1' || name.text[0] > '9') return;
    const auto has = has_uid(name.text, uid);
    const int failed = has ? 0 : has.error().os_errno;
    if (!has && !(hides && (failed == EPERM || failed == EACCES))) unseen = has.error();
    if (has && *has) found.push_back(name.text);
  });
  if (code < 0) return os_error("cannot list the processes", -code);
  if (unseen) return *unseen;
  return found;
}

// The pidfd is opened before the uid is checked again, so that a reused pid is never killed.
void kill_if(const std::string& pid, uint32_t uid) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, number_in<pid_t>(pid).value_or(-1), 0)));
  const auto has = has_uid(pid, uid);
  if (process && has && *has) ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
}

// The value of a mount option; empty: it is not there.
std::string_view option_in(std::string_view options, std::string_view name) {
  for (const std::string_view option : split(options, ','))
    if (option.starts_with(name)) return option.substr(name.size());
  return {};
}

}  // namespace

Result<uint32_t> count_processes(uint32_t uid) {
  auto pids = pids_of(uid);
  if (!pids) return pids.error();
  return static_cast<uint32_t>(pids->size());
}

bool hides_processes(std::string_view mountinfo, std::span<const gid_t> groups) {
  std::string_view options;
  for (const std::string_view line : split(mountinfo, '\n')) {
    const auto fields = split(line, ' ');
    if (fields.size() > 5 && fields[4] == "/proc") options = fields.back();  // the last one is on top
  }
  const std::string_view hide = option_in(options, "hidepid="), group = option_in(options, "gid=");
  if (hide.empty() || hide == "0" || hide == "off") return false;
  if (hide == "4" || hide == "ptraceable") return true;
  const auto sees = number_in<gid_t>(group.empty() ? "0" : group);
  return !sees || std::find(groups.begin(), groups.end(), *sees) == groups.end();
}

std::string why_processes_are_hidden() {
  if (missing_capabilities(kTrace).empty()) return "";
  std::vector<gid_t> groups(static_cast<size_t>(std::max(::getgroups(0, nullptr), 0)));
  if (::getgroups(static_cast<int>(groups.size()), groups.data()) < 0) groups.clear();
  groups.push_back(::getegid());
  if (!hides_processes(read_small_file(AT_FDCWD, "/proc/self/mountinfo"), groups)) return "";
  return "/proc hides the processes of other users, which could then not be ended: mount -o "
         "remount,hidepid=0 /proc";
}

bool uid_runs(uint32_t uid) {
  errno = 0;
  return ::getpriority(PRIO_USER, uid) != -1 || errno != ESRCH;
}

Result<void> end_processes(uint32_t uid) {
  if (uid == 0 || uid == ::geteuid())
    return invalid("refusing to end every process of the gateway's own user");
  std::string unseen;
  for (int round = 0; round < kRounds; ++round) {
    auto pids = pids_of(uid);
    if (!pids) return pids.error();
    unseen = why_unseen(uid);
    if (pids->empty() && unseen.empty()) return {};
    for (const std::string& pid : *pids) kill_if(pid, uid);
    const timespec pause{0, kRoundNs};
    ::nanosleep(&pause, nullptr);
  }
  return Error{ISOGATE_UNAVAILABLE, 0,
               "processes of the sandbox could not be ended" + (unseen.empty() ? "" : ": " + unseen)};
}

}  // namespace isogate
