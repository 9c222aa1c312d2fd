#include "runner/uid/uid_leftovers.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <sys/ipc.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "lib/fd.h"
#include "lib/text.h"
#include "runner/exec/apart.h"
#include "runner/exec/raw_syscall.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

constexpr size_t kMostOfATable = size_t{64} << 20;
constexpr long kQueueMagic = 0x19800202;  // statfs(2)
constexpr long kNoOperation = -1;         // of keyctl(2)
constexpr int kFreedRounds = 500;
constexpr timespec kFreedPause{0, 10'000'000};

struct SystemV {
  const char* table;    // proc_sysvipc(5); the id is in column 1
  long control;         // shmctl(2), msgctl(2), semctl(2)
  size_t uid, creator;  // columns
};
constexpr SystemV kSystemV[] = {{"/proc/sysvipc/shm", SYS_shmctl, 7, 9},
                                {"/proc/sysvipc/msg", SYS_msgctl, 7, 9},
                                {"/proc/sysvipc/sem", SYS_semctl, 4, 6}};

struct Object {
  long control, id;
  bool its_own;  // it made it; else another uid gave it away, and may take it back at any time
};

struct Leftovers {
  std::vector<Object> objects;
  bool keys = false;
  Fd queues, memory;  // directories; empty: there is none
};

// Of an id below 0: nothing. semctl(2) has one argument more before the command.
static_assert(IPC_RMID == 0);
long remove_object(const Object& object) {
  return raw::call(object.control, object.id, IPC_RMID, IPC_RMID, 0);
}

long keyctl(long operation, long a, long b) { return raw::call(SYS_keyctl, operation, a, b, 0, 0); }

// The kernel has no such thing, or a filter around this process refuses the call, and so that of programs.
bool is_absent(long result) { return result == -ENOSYS || result == -EPERM; }

// A file of /proc that shows the objects of all users; empty where there are none, which `trial`, a call on
// such objects, shows.
Result<std::string> read_table(const char* path, long trial) {
  const Fd table(::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  struct statfs info {};
  if (table && ::fstatfs(table.get(), &info) == 0 && info.f_type == PROC_SUPER_MAGIC)
    return read_to_end(table.get(), kMostOfATable, std::string("cannot read `") + path + "`");
  if (is_absent(trial)) return std::string();
  return Error{
      ISOGATE_UNAVAILABLE, 0,
      std::string("`") + path +
          "` cannot be read here, which shows what sandboxes leave in the kernel: mount all of /proc"};
}

Result<void> find_objects(const SystemV& kind, uint32_t uid, std::vector<Object>& found) {
  const auto table = read_table(kind.table, remove_object({kind.control, -1, false}));
  if (!table) return table.error();
  std::istringstream lines(*table);
  std::string line;
  std::getline(lines, line);  // the names of the columns
  while (std::getline(lines, line)) {
    std::istringstream text(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(text), {}};
    const auto number = [&](size_t column) {
      return column < fields.size() ? number_in<uint32_t>(fields[column]) : std::nullopt;
    };
    const auto id = number(1), owner = number(kind.uid), creator = number(kind.creator);
    if (!id || !owner || !creator)
      return Error{ISOGATE_INTERNAL, 0, std::string("`") + kind.table + "` has an unknown form"};
    if (*owner == uid || *creator == uid)
      found.push_back({kind.control, static_cast<long>(*id), *creator == uid});
  }
  return {};
}

// Those of this process's IPC namespace, whether or not it is mounted anywhere (Linux 5.2, CAP_SYS_ADMIN).
Fd mount_queues() {
  const Fd context(static_cast<int>(::syscall(SYS_fsopen, "mqueue", FSOPEN_CLOEXEC)));
  if (!context || ::syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return Fd();
  const Fd mount(static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, 0)));
  return mount ? Fd(::openat(mount.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) : Fd();
}

Result<Fd> open_queues() {
  if (is_absent(raw::call(SYS_mq_unlink, ""))) return Fd();
  if (Fd mounted = mount_queues()) return mounted;
  Fd place(::openat(AT_FDCWD, "/dev/mqueue", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct statfs info {};
  if (place && ::fstatfs(place.get(), &info) == 0 && info.f_type == kQueueMagic) return place;
  return Error{
      ISOGATE_UNAVAILABLE, 0,
      "POSIX message queues, which sandboxes may leave, cannot be listed here: grant CAP_SYS_ADMIN, or "
      "mkdir /dev/mqueue && mount -t mqueue mqueue /dev/mqueue"};
}

Result<Leftovers> find_leftovers(uint32_t uid) {
  Leftovers found;
  for (const SystemV& kind : kSystemV)
    if (auto added = find_objects(kind, uid, found.objects); !added) return added.error();
  const auto keys = has_keys(uid);
  if (!keys) return keys.error();
  found.keys = *keys;
  auto queues = open_queues();
  if (!queues) return queues.error();
  found.queues = std::move(*queues);
  found.memory = Fd(::openat(AT_FDCWD, "/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!found.memory && errno != ENOENT) return os_error("cannot open `/dev/shm`", errno);
  return found;
}

// A directory of the uid, to which others may be about to add.
void close_to_others(int directory, const std::string& name, uint32_t uid) {
  const Fd opened(::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (opened && ::fstat(opened.get(), &info) == 0 && info.st_uid == uid) ::fchmod(opened.get(), 0700);
}

Result<void> remove_owned(const Fd& directory, uint32_t uid, int cancel_fd) {
  if (!directory) return {};
  Result<void> removed;
  const int code = each_name(directory.get(), [&](const DirReader::Name& name) {
    struct stat info {};
    if (!removed) return;
    if (::fstatat(directory.get(), name.text.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) removed = os_error("cannot look at an entry", errno);
    } else if (info.st_uid == uid) {
      if (is_signalled(cancel_fd)) {
        removed = Error{ISOGATE_CANCELLED, 0, "cancelled"};
        return;
      }
      close_to_others(directory.get(), name.text, uid);
      removed = remove_tree(directory.get(), name.text, cancel_fd);
    }
  });
  return code < 0 ? os_error("cannot list the directory", -code) : removed;
}

// As the uid. A link from the thread's keyring gives a possessor's rights, which the owner's do not include.
// Results do not count: has_keys() shows what is left.
void invalidate_keyrings(uint32_t uid) {
  const long rings[] = {keyctl(KEYCTL_GET_PERSISTENT, uid, KEY_SPEC_THREAD_KEYRING),
                        keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_SESSION_KEYRING, 0),
                        keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0)};
  keyctl(KEYCTL_LINK, KEY_SPEC_USER_SESSION_KEYRING, KEY_SPEC_THREAD_KEYRING);
  keyctl(KEYCTL_LINK, KEY_SPEC_USER_KEYRING, KEY_SPEC_THREAD_KEYRING);
  for (const long ring : rings)
    if (ring > 0) keyctl(KEYCTL_INVALIDATE, ring, 0);
}

// In a child that becomes the uid: keyrings are found by it, and objects are their owner's and creator's to
// remove.
Result<void> remove_as(uint32_t uid, const Leftovers& found) {
  if (found.objects.empty() && !found.keys) return {};
  long code = 0;
  const auto ran = run_apart([&]() -> Result<void> {
    // Made before it is the uid, whose quota of keys may be full.
    if (found.keys) keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_THREAD_KEYRING, 1);
    code = raw::call(SYS_setresuid, uid, uid, uid);
    if (code < 0) return {};
    if (found.keys) invalidate_keyrings(uid);
    for (const Object& object : found.objects) {
      const long removed = remove_object(object);
      if (removed < 0 && removed != -EINVAL && removed != -EIDRM && object.its_own) code = removed;
    }
    return {};
  });
  if (ran && code < 0) return os_error("cannot do it in its identity", static_cast<int>(-code));
  return ran;
}

Result<void> await_freed_keys(uint32_t uid) {
  for (int round = 0; round < kFreedRounds; ++round) {
    const auto left = has_keys(uid);
    if (!left) return left.error();
    if (!*left) return {};
    ::nanosleep(&kFreedPause, nullptr);
  }
  return Error{ISOGATE_UNAVAILABLE, 0,
               "a keyring that it revoked or let expire stays for kernel.keys.gc_delay seconds, one that it "
               "closed to everybody until this machine restarts"};
}

Result<void> about(const std::string& what, Result<void> result) {
  if (result) return result;
  Error error = std::move(result.error());
  error.message = "cannot remove " + what + " of the sandbox: " + error.message;
  return error;
}

}  // namespace

// Counts every key in the kernel, whatever it permits and whatever holds it. Uids of the registry fill the
// width of its first column.
Result<bool> has_keys(uint32_t uid) {
  const auto table = read_table("/proc/key-users", keyctl(kNoOperation, 0, 0));
  if (!table) return table.error();
  return line_field(*table, std::to_string(uid)).has_value();
}

Result<void> remove_leftovers_of(uint32_t uid, int cancel_fd) {
  const auto found = find_leftovers(uid);
  if (!found) return found.error();
  if (auto done = about("System V objects and keys", remove_as(uid, *found)); !done) return done;
  if (auto done = about("POSIX message queues", remove_owned(found->queues, uid, cancel_fd)); !done)
    return done;
  if (auto done = about("what is in `/dev/shm`", remove_owned(found->memory, uid, cancel_fd)); !done)
    return done;
  return found->keys ? about("the keys", await_freed_keys(uid)) : Result<void>();
}

std::string why_leftovers_are_hidden() {
  const auto found = find_leftovers(::geteuid());
  return found ? "" : found.error().message;
}

}  // namespace isogate
