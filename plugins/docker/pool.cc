#include "plugins/docker/pool.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "plugins/common/or_throw.h"
#include "plugins/docker/container/record.h"
#include "plugins/docker/sandbox.h"
#include "runner/files/workspace.h"
#include "runner/files/workspace_state.h"

namespace isogate::docker {
namespace {

using Clock = std::chrono::steady_clock;

std::string name_for(const std::string& backend) { return "ready." + backend; }

std::string pool_directory(const std::string& sandboxes_dir, const std::string& backend) {
  return sandboxes_dir + "/" + name_for(backend);
}

constexpr std::chrono::seconds kLookAgain{5};

void make_directory(const std::string& sandboxes_dir, const std::string& name) {
  const Fd parent = or_throw(open_state_directory(sandboxes_dir));
  if (::mkdirat(parent.get(), name.c_str(), 0711) != 0 && errno != EEXIST)
    fail_with_io("cannot make the directory of the sandboxes made ahead", errno);
}

// Whether its maker has not locked it yet, which is what happens before this file is made.
bool is_begun(int directory) {
  if (or_throw(read_state_file(directory, kMadeAsFile))) return false;
  struct stat info {};
  return ::fstat(directory, &info) == 0 && is_young(info);
}

}  // namespace

Pool::Pool(Options options)
    : options_(std::move(options)),
      directory_(pool_directory(options_.sandboxes_dir, options_.backend)),
      registry_({.uids_dir = options_.uids_dir, .sandboxes_dir = directory_}),
      disks_(directory_, options_.own_uids, options_.disk),
      pool_(*this, options_.host, options_.size, 1, options_.limits) {}

std::unique_ptr<Container> Pool::container_of(const std::string& id, const SandboxDisk* disk, uint32_t uid,
                                              const Limits& limits) {
  const Fd parent = or_throw(open_state_directory(directory_));
  Fd gate = or_throw(Workspace::beside(directory_, id, kGateDirectory, {}, 0755));
  return std::make_unique<Container>(options_.services(),
                                     options_.parts(id, directory_ + "/" + id, disk, uid), limits,
                                     or_throw(open_sandbox_directory(parent.get(), id)), std::move(gate));
}

PooledContainer Pool::make(const Limits& limits, const sdk::Call& call) {
  make_directory(options_.sandboxes_dir, name_for(options_.backend));
  PooledContainer ready;
  ready.id = random_sandbox_id();
  ready.limits = limits;
  ready.uid = options_.own_uids ? or_throw(registry_.assign(ready.id, ready.id)) : ::geteuid();
  try {
    const Identity identity{options_.own_uids, ready.uid, ready.uid};
    SandboxDisks::Wanted wanted{.id = ready.id, .identity = identity, .best_effort = true, .locked = true};
    wanted.asked_bytes = limits.get(ISOGATE_LIMIT_DISK_BYTES);
    ready.disk =
        or_throw(open_disk_workspace(disks_, wanted,
                                     {directory_, ready.id, identity, nullptr, false, options_.backend}))
            .disk;
    const Fd parent = or_throw(open_state_directory(directory_));
    ready.lock = or_throw(open_sandbox_directory(parent.get(), ready.id));
    if (::flock(ready.lock.get(), LOCK_EX | LOCK_NB) != 0)
      fail_with_io("cannot lock a sandbox made ahead", errno);
    or_throw(create_state_file(ready.lock.get(), kMadeAsFile, ready.id));
    ready.container = container_of(ready.id, ready.disk.get(), ready.uid, limits);
    ready.container->open(call);
  } catch (...) {
    remove(std::move(ready));
    throw;
  }
  return ready;
}

// Every part of it. What cannot be removed now is a leftover at the next start.
bool Pool::remove(PooledContainer ready) noexcept try {
  const isogate_call unbounded{sizeof unbounded, -1, INT64_MAX, {}};
  const sdk::Call call(unbounded);
  const Home home{directory_, ready.id, ready.disk, options_.own_uids ? &registry_ : nullptr, ready.uid};
  home.remove(ready.container.get(), call);
  return true;
} catch (const std::exception& error) {
  options_.host.log(ISOGATE_LOG_WARN,
                    "a sandbox made ahead, " + ready.id + ", stays for now: " + error.what());
  left_behind_ = true;
  return false;
}

// One that cannot be examined hides no other, and is examined again.
void Pool::tend(const sdk::Call& call) {
  if (!left_behind_ || Clock::now() < next_look_) return;
  next_look_ = Clock::now() + kLookAgain;
  if (::access(directory_.c_str(), F_OK) != 0 && errno == ENOENT) {
    left_behind_ = false;
    return;
  }
  const Fd parent = or_throw(open_state_directory(directory_));
  const std::vector<std::string> ids = or_throw(Workspace::enumerate(directory_, options_.backend));
  left_behind_ = false;
  for (const std::string& id : ids) {
    if (call.cancelled()) {
      left_behind_ = true;
      return;
    }
    try {
      remove_leftover(parent.get(), id);
    } catch (const std::exception& error) {
      options_.host.log(ISOGATE_LOG_WARN, "what is left of " + id + " stays for now: " + error.what());
      left_behind_ = true;
    }
  }
}

void Pool::remove_leftover(int parent, const std::string& id) {
  PooledContainer left;
  left.id = id;
  auto directory = open_sandbox_directory(parent, id);
  if (!directory && directory.error().os_errno == ENOENT) return;  // taken meanwhile
  left.lock = or_throw(std::move(directory));
  const bool in_use = is_begun(left.lock.get()) || ::flock(left.lock.get(), LOCK_EX | LOCK_NB) != 0;
  if (in_use || may_still_be_made(left.lock.get())) {
    left_behind_ = true;
    return;
  }
  // Handed over already, but not renamed: then the uid is not ours to release.
  if (options_.own_uids)
    if (const auto uid = registry_.assign(id, id); uid) left.uid = *uid;
  left.container = container_of(id, nullptr, left.uid, options_.limits);
  remove(std::move(left));
}

std::optional<PooledContainer> Pool::take(const std::string& id, const Limits& limits) {
  auto ready = pool_.pick(limits);
  if (!ready) return std::nullopt;
  try {
    const Fd from = or_throw(open_state_directory(directory_));
    const Fd to = or_throw(open_state_directory(options_.sandboxes_dir));
    if (options_.own_uids) or_throw(registry_.hand_over(ready->uid, ready->id, id));
    if (::renameat2(from.get(), ready->id.c_str(), to.get(), id.c_str(), RENAME_NOREPLACE) != 0) {
      const int code = errno;
      if (options_.own_uids) or_throw(registry_.hand_over(ready->uid, id, ready->id));
      fail_with_io("cannot take a sandbox made ahead", code);
    }
  } catch (...) {
    remove(std::move(*ready));
    throw;
  }
  ready->disk->moved(options_.sandboxes_dir, id, std::move(ready->lock));
  return ready;
}

bool Pool::left_anything(const std::string& sandboxes_dir, const std::string& backend) {
  const std::string directory = pool_directory(sandboxes_dir, backend);
  if (::access(directory.c_str(), F_OK) != 0) return false;
  const auto found = Workspace::enumerate(directory, backend);
  return !found || !found->empty();
}

}  // namespace isogate::docker
