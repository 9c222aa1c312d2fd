#include "runner/agent/leftovers.h"

#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "lib/fd.h"
#include "runner/files/workspace_tree.h"

namespace isogate::agent {
namespace {

constexpr std::chrono::milliseconds kLeftoversPatience{100};

union SemaphoreArgument {  // semctl(2): the caller declares it
  int value;
  semid_ds* set;
  seminfo* info;
};

// The indexes of the kernel's own table, up to the last one in use. Nothing is examined if none is in use.
void remove_segments() {
  shm_info info{};
  const int last = ::shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&info));
  if (last < 0 || info.used_ids == 0) return;
  for (int i = 0; i <= last; ++i) {
    shmid_ds segment{};
    if (const int id = ::shmctl(i, SHM_STAT, &segment); id >= 0) ::shmctl(id, IPC_RMID, nullptr);
  }
}

void remove_queues() {
  msginfo info{};
  const int last = ::msgctl(0, MSG_INFO, reinterpret_cast<msqid_ds*>(&info));
  if (last < 0 || info.msgpool == 0) return;
  for (int i = 0; i <= last; ++i) {
    msqid_ds queue{};
    if (const int id = ::msgctl(i, MSG_STAT, &queue); id >= 0) ::msgctl(id, IPC_RMID, nullptr);
  }
}

void remove_semaphores() {
  seminfo info{};
  SemaphoreArgument argument{};
  argument.info = &info;
  const int last = ::semctl(0, 0, SEM_INFO, argument);
  if (last < 0 || info.semusz == 0) return;
  for (int i = 0; i <= last; ++i) {
    semid_ds set{};
    argument.set = &set;
    if (const int id = ::semctl(i, 0, SEM_STAT, argument); id >= 0) ::semctl(id, 0, IPC_RMID, argument);
  }
}

void empty(const std::string& scratch) {
  const Fd directory(::openat(AT_FDCWD, scratch.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return;
  const auto deadline = std::chrono::steady_clock::now() + kLeftoversPatience;
  for (DirReader reader; !reader.end() && std::chrono::steady_clock::now() < deadline;) {
    std::vector<DirReader::Name> names;
    if (reader.next(directory.get(), names) < 0) return;
    for (const auto& name : names)
      [[maybe_unused]] const auto gone = remove_tree(directory.get(), name.text, -1, deadline);
  }
}

}  // namespace

void remove_leftovers(const std::string& scratch) {
  remove_segments();
  remove_queues();
  remove_semaphores();
  empty(scratch);
}

}  // namespace isogate::agent
